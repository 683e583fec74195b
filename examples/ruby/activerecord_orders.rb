# snowflake_id with Active Record, as in Rails. PGHOST, PGDATABASE, PGUSER and so on say where.

require "active_record"
require "stringio"

ActiveRecord::Base.establish_connection(adapter: "postgresql")
ActiveRecord::Schema.verbose = false

# In a migration: create_table :orders, id: :bigint, default: -> { "snowflake_nextval()" }
ActiveRecord::Schema.define do
  create_table :activerecord_orders, id: :bigint, default: -> { "snowflake_nextval()" }, force: true do |t|
    t.text :customer, null: false
  end
end

class Order < ActiveRecord::Base
  self.table_name = "activerecord_orders"
end

ada = Order.create!(customer: "Ada")
puts "one row: #{ada.id}"
raise unless ada.id.is_a?(Integer) && Order.find(ada.id).customer == "Ada"

rows = Array.new(1000) { |i| { customer: "customer #{i}" } }
many = Order.insert_all!(rows, returning: %w[id customer]).rows
puts "many rows: #{many.size} from #{many.first.first} to #{many.last.first}"
raise unless many.map(&:first).uniq.size == 1000

# schema.rb keeps the default, and has nothing of the extension but the line that enables it.
schema = StringIO.new
ActiveRecord::SchemaDumper.dump(ActiveRecord::Base.connection, schema)
tables = schema.string.lines.grep(/create_table/)
raise schema.string unless tables.size == 1 && tables[0].include?('id: :bigint, default: -> { "snowflake_nextval()" }')

puts "all is well"

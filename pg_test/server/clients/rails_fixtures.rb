# Fixtures of Rails for a table with a snowflake key. The argument is `alone`, or `recipe`: that of docs/clients.md.
# Prints the rows, and what the next value of a serial key is that a fixture has set.

require "active_record"
require "active_record/fixtures"
require "tmpdir"

ActiveRecord::Base.establish_connection(adapter: "postgresql")
ActiveRecord::Schema.verbose = false
ActiveRecord::Schema.define do
  create_table :orders, id: :bigint, default: -> { "snowflake_nextval()" }, force: true do |t|
    t.text :customer, null: false
  end
  create_table :serials, force: true
end

if ARGV[0] == "recipe"
  module SnowflakeKeys
    def pk_and_sequence_for(table)
      key, sequence = super
      [key, (sequence if sequence&.identifier.present?)]
    end
  end
  ActiveRecord::ConnectionAdapters::PostgreSQLAdapter.prepend(SnowflakeKeys)
end

connection = ActiveRecord::Base.connection
Dir.mktmpdir do |folder|
  File.write("#{folder}/orders.yml", "ada:\n  customer: Ada\ngrace:\n  customer: Grace\n")
  File.write("#{folder}/serials.yml", "one:\n  id: 41\n")
  ActiveRecord::FixtureSet.create_fixtures(folder, %w[orders serials])
end
connection.reset_pk_sequence!("orders")
puts connection.select_values("SELECT customer FROM orders ORDER BY customer").join(" ")
puts connection.select_value("SELECT nextval('serials_id_seq')")

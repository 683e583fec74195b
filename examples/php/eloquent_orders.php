<?php
// snowflake_id with Eloquent, as in Laravel. PGHOST, PGDATABASE, PGUSER and so on say where.
require "Illuminate/Database/autoload.php";

use Illuminate\Database\Capsule\Manager as DB;
use Illuminate\Database\Eloquent\Model;

$db = new DB();
$db->addConnection(["driver" => "pgsql", "host" => getenv("PGHOST"), "username" => getenv("PGUSER"),
    "database" => getenv("PGDATABASE"), "charset" => "utf8", "schema" => "public"]);
$db->setAsGlobal();
$db->bootEloquent();
DB::schema()->dropIfExists("eloquent_orders");
DB::schema()->create("eloquent_orders", function ($table) {
    $table->bigInteger("id")->primary()->default(DB::raw("snowflake_nextval()"));
    $table->text("customer");
});

class Order extends Model
{
    protected $table = "eloquent_orders";
    protected $fillable = ["customer"];
    public $timestamps = false;
}

// The key is a string in PHP and in JSON, for readers of JSON that round numbers.
class TextOrder extends Order
{
    protected $keyType = "string";
}

$ada = Order::create(["customer" => "Ada"]);
$grace = TextOrder::create(["customer" => "Grace"]);
echo "a number: ", $ada->toJson(), "\n";
echo "a string: ", $grace->toJson(), "\n";
Order::insert([["customer" => "Edsger"], ["customer" => "Barbara"]]);
echo "many rows: ", Order::pluck("id")->join(" "), "\n";

if (!is_int($ada->id) || Order::find($ada->id)->customer !== "Ada" || !is_string(TextOrder::find($grace->id)->id)
    || TextOrder::find($grace->id)->toJson() !== json_encode(["id" => "$grace->id", "customer" => "Grace"])) {
    throw new Exception($ada->id);
}
echo "all is well\n";

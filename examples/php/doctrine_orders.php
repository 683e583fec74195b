<?php
// snowflake_id with Doctrine's ORM. Connects as libpq does: PGHOST, PGDATABASE, PGUSER and so on say where.
require "Doctrine/ORM/autoload.php";

use Doctrine\DBAL\DriverManager;
use Doctrine\ORM\Configuration;
use Doctrine\ORM\EntityManager;
use Doctrine\ORM\EntityManagerInterface;
use Doctrine\ORM\Id\AbstractIdGenerator;
use Doctrine\ORM\Mapping as ORM;
use Doctrine\ORM\Mapping\Driver\AttributeDriver;

// Not the strategy IDENTITY, which asks for the sequence of a serial column.
class SnowflakeGenerator extends AbstractIdGenerator
{
    public function generateId(EntityManagerInterface $em, $entity)
    {
        return $em->getConnection()->fetchOne("SELECT snowflake_nextval()");
    }
}

#[ORM\Entity, ORM\Table(name: "doctrine_orders")]
class Order
{
    #[ORM\Id, ORM\Column(type: "bigint")]
    #[ORM\GeneratedValue(strategy: "CUSTOM"), ORM\CustomIdGenerator(class: SnowflakeGenerator::class)]
    public ?string $id = null;

    public function __construct(#[ORM\Column(type: "text")] public string $customer)
    {
    }
}

$config = new Configuration();
$config->setMetadataDriverImpl(new AttributeDriver([__DIR__]));
$config->setProxyDir(sys_get_temp_dir());
$config->setProxyNamespace("Proxies");
$connection = DriverManager::getConnection(
    ["driver" => "pdo_pgsql", "host" => getenv("PGHOST"), "user" => getenv("PGUSER"), "dbname" => getenv("PGDATABASE")]
);
$connection->executeStatement("DROP TABLE IF EXISTS doctrine_orders");
$connection->executeStatement(
    "CREATE TABLE doctrine_orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), customer text NOT NULL)"
);

$em = new EntityManager($connection, $config);
$em->persist($ada = new Order("Ada"));
echo "before the insert: $ada->id\n";
$em->persist($grace = new Order("Grace"));
$em->persist($edsger = new Order("Edsger"));
$em->flush();
echo "many rows: $grace->id to $edsger->id\n";

$em->clear();
if ($em->find(Order::class, $ada->id)->customer !== "Ada") {
    throw new Exception($ada->id);
}
echo "all is well\n";

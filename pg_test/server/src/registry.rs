//! A server that stands in for the fleet's registry: its function answers from a table and notes what it was asked.

use crate::server::{Builder, Server};
use crate::sql::{one, run};
use rand::Rng;
use std::path::Path;
use std::process::Command;

/// The extension is in a schema that is on no search path.
const STAND_IN: &str = r#"
    CREATE SCHEMA "the Registry";
    CREATE EXTENSION snowflake_id SCHEMA "the Registry";
    CREATE ROLE node LOGIN PASSWORD 'swordfish';
    CREATE TABLE said (
        answer text, registry uuid, worker_id integer, floor bigint, until bigint, reason text, detail text, hint text);
    INSERT INTO said VALUES ('granted', '00000000-0000-0000-0000-000000000007', 12, 100, 200, NULL, NULL, NULL);
    CREATE TABLE asked (arguments text NOT NULL, as_role name NOT NULL, at timestamptz DEFAULT clock_timestamp());
    CREATE OR REPLACE FUNCTION snowflake_internal.snowflake_registry_contact(
        registry_id uuid, system_identifier bigint, node_id uuid, node_name text, number bigint, nonce uuid,
        lease_worker_id integer, lease_floor bigint, lease_until bigint,
        clock timestamptz, layout text, tick_ms integer, epoch timestamptz, backup_workers integer,
        datacenter_id integer, in_recovery boolean, version text,
        OUT answer text, OUT registry uuid, OUT worker_id integer, OUT floor bigint, OUT until bigint,
        OUT reason text, OUT detail text, OUT hint text)
    LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp SET timezone = 'UTC' AS $$
        INSERT INTO asked VALUES (
            ROW($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)::text, session_user);
        SELECT * FROM said;
    $$;
    -- The function that stands in has the rights of the one that it replaces.
    GRANT EXECUTE ON FUNCTION snowflake_internal.snowflake_registry_contact TO node;
"#;

impl Builder {
    /// Listens on this address, too, at port 5432.
    pub fn listening(self, address: &str) -> Self {
        self.setting("listen_addresses", address)
    }

    /// Has its worker from the registry of this connection string.
    pub fn member_of(self, registry: &str) -> Self {
        self.without("snowflake_id.worker_id").setting("snowflake_id.registry", registry)
    }

    /// Starts a server that answers contacts.
    #[track_caller]
    pub fn start_registry(self) -> Server {
        let server = self.start();
        run(&mut server.connect(), STAND_IN);
        server
    }
}

/// An address of the loopback network that nobody else uses, so that servers need no port of their own.
pub fn loopback_address() -> String {
    let mut random = rand::rng();
    let mut part = || random.random_range(1..=254_u8);
    format!("127.{}.{}.{}", part(), part(), part())
}

impl Server {
    /// A connection string of the node's role, by this server's socket.
    pub fn registry_string(&self) -> String {
        // A busy machine may let the registry wait for a processor for longer than a node waits by itself.
        format!("host={} port=5432 dbname=postgres user=node connect_timeout=30", self.folder().display())
    }

    /// Lets the node's role in only with its password.
    pub fn require_password(&self) {
        let lines = "local all postgres trust\n\
                     local all node scram-sha-256\n\
                     host all all all scram-sha-256\n";
        std::fs::write(self.data().join("pg_hba.conf"), lines).expect("pg_hba.conf can be written");
        run(&mut self.connect(), "SELECT pg_reload_conf()");
        crate::wait_until("the new pg_hba.conf", crate::secs(30), || {
            self.config().user("node").connect(postgres::NoTls).is_err().then_some(())
        });
    }

    /// How many contacts were committed.
    #[track_caller]
    pub fn contacts(&self) -> i64 {
        one(&mut self.connect(), "SELECT count(*) FROM asked")
    }
}

/// A certification authority, and a server's key and certificate for the name `registry.test`, in a folder.
pub fn make_certificates(folder: &Path) {
    let openssl = |arguments: &str| {
        let mut command = Command::new("openssl");
        command.args(arguments.split(' ')).current_dir(folder);
        crate::install::run(&mut command);
    };
    let new_key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
    for authority in ["ca", "other-ca"] {
        openssl(&format!(
            "req -x509 {new_key} -keyout {authority}.key -out {authority}.crt -subj /CN={authority}"
        ));
    }
    let name = "-subj /CN=registry.test -addext subjectAltName=DNS:registry.test";
    let signed = "-CA ca.crt -CAkey ca.key";
    openssl(&format!("req -x509 {new_key} {signed} -keyout server.key -out server.crt {name}"));
    for file in std::fs::read_dir(folder).expect("the folder").flatten() {
        crate::faults::own(&file.path());
    }
}

//! Databases on one server that all tests of a program share: a server takes thirty times as long as a database.

use crate::sql::{Failure, one, run};
use crate::{Builder, Server};
use postgres::{Client, NoTls};
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// A database with the extension. Dropping it drops it on the server, too, with those that were restored from it; or
/// stops the server, if that is the database's own.
///
/// Roles belong to the server: tests use those that `setup` of [`Database::shared`] creates as they are, and name all
/// others differently.
pub struct Database {
    server: Arc<Server>,
    name: String,
    /// The names of those that were restored from it.
    restored: Mutex<Vec<String>>,
    /// Looks at the database, see [`Database::unchanged_by`].
    watcher: Mutex<Option<Client>>,
}

impl Database {
    /// A database on the server that tests with the same settings and set-up share. It runs until the program ends.
    #[track_caller]
    pub fn shared(builder: Builder, setup: &str) -> Self {
        type Settings = BTreeMap<String, String>;
        type Shared = Arc<OnceLock<Arc<Server>>>;
        static SHARED: Mutex<BTreeMap<(Settings, String), Shared>> = Mutex::new(BTreeMap::new());
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let key = (builder.settings.clone(), setup.to_owned());
        let server = SHARED.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default().clone();
        let server = server.get_or_init(|| {
            let server = builder.start_with_extension();
            run(&mut server.connect(), setup);
            Arc::new(server)
        });
        let database = Self::new(server.clone(), &format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        // The other strategy writes the database to the WAL, which takes twice as long.
        database.control(&format!("CREATE DATABASE {} TEMPLATE postgres STRATEGY file_copy", database.name));
        database
    }

    fn new(server: Arc<Server>, name: &str) -> Self {
        Self { server, name: name.to_owned(), restored: Mutex::default(), watcher: Mutex::default() }
    }

    /// Runs a statement in a database that is none of the tests'.
    #[track_caller]
    fn control(&self, statement: &str) {
        let control = self.server.config().dbname("template1").connect(NoTls);
        run(&mut control.expect("a session"), statement);
    }

    /// The name of the database.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The server of the database.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// A new session of the superuser `postgres` in the database.
    #[track_caller]
    pub fn connect(&self) -> Client {
        self.connect_as("postgres")
    }

    /// A new session of a role in the database.
    #[track_caller]
    pub fn connect_as(&self, role: &str) -> Client {
        self.session(&self.name, role)
    }

    #[track_caller]
    fn session(&self, database: &str, role: &str) -> Client {
        match self.server.config().user(role).dbname(database).connect(NoTls) {
            Ok(client) => client,
            Err(e) => panic!("cannot connect: {e:?}\n{}", self.server.log()),
        }
    }

    /// `pg_dump | psql` into a fresh database on the same server, whose dump is the same; a session there.
    #[track_caller]
    pub fn restored(&self) -> Client {
        let mut restored = self.restored.lock().unwrap_or_else(PoisonError::into_inner);
        let name = format!("{}_restored_{}", self.name, restored.len());
        restored.push(name.clone());
        let dump = self.server.dump(&self.name, &[]);
        self.control(&format!("CREATE DATABASE {name} TEMPLATE template0 STRATEGY file_copy"));
        self.server.restore(&name, &dump);
        assert_eq!(self.server.dump(&name, &[]), dump, "what was restored is what was dumped");
        self.session(&name, "postgres")
    }

    /// Runs something that leaves everything in the database as it was. Compared are the versions of all rows of all
    /// tables and catalogs, and the values of sequences. So a dump would be the same, which takes ten times as long.
    #[track_caller]
    pub fn unchanged_by<T>(&self, what: &str, run: impl FnOnce() -> T) -> T {
        let mut watcher = self.watcher.lock().unwrap_or_else(PoisonError::into_inner);
        let watcher = watcher.get_or_insert_with(|| self.connect());
        let query: String = one(watcher, VERSIONS);
        let query = watcher.prepare(&query).expect("the tables of the database");
        // In any order, because parallel workers may read them; an error, if a table is gone.
        let mut versions = || -> Result<BTreeSet<String>, Failure> {
            let tables = watcher.query(&query, &[]).map_err(|e| Failure::from(&e))?;
            Ok(tables.iter().map(|table| table.get(0)).collect())
        };
        let before = versions();
        assert!(before.is_ok(), "{before:?}");
        let outcome = run();
        assert_eq!(versions(), before, "{what} changes nothing");
        outcome
    }
}

/// A query for a line per table. A row that is written again has another `ctid` or `xmin`.
const VERSIONS: &str = "
    SELECT string_agg(format(CASE WHEN c.relkind = 'S'
            THEN 'SELECT concat_ws('' '', %L, last_value, is_called) FROM %s'
            ELSE 'SELECT concat_ws('' '', %L, count(*), bit_xor(hash_record_extended(ROW(ctid, xmin), 0))) FROM %s' END,
        c.oid::regclass, c.oid::regclass)
        || CASE c.relname WHEN 'pg_shdepend' THEN ' WHERE dbid = (SELECT oid FROM pg_database
            WHERE datname = current_database())' ELSE '' END, ' UNION ALL ' ORDER BY c.oid)
    FROM pg_class c
    WHERE c.relkind IN ('r', 'm', 'S') AND c.relpersistence <> 't' AND (NOT c.relisshared OR c.relname = 'pg_shdepend')";

impl From<Server> for Database {
    /// The database `postgres` of a server of its own.
    fn from(server: Server) -> Self {
        Self::new(Arc::new(server), "postgres")
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if self.name == "postgres" {
            return;
        }
        if std::thread::panicking() {
            self.server.show_end_of_log();
        }
        // Without a panic, which would hide that of the test.
        if let Ok(mut control) = self.server.config().dbname("template1").connect(NoTls) {
            let restored = std::mem::take(&mut *self.restored.lock().unwrap_or_else(PoisonError::into_inner));
            for name in restored.iter().chain([&self.name]) {
                let _ = control.batch_execute(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"));
            }
        }
    }
}

//! Tests that run inside a PostgreSQL server, one transaction each: every function, label, error.

#[pgrx::pg_schema]
mod tests {
    use pgrx::prelude::*;

    #[pg_test]
    fn ids_ascend() {
        let ascending = Spi::get_one::<bool>("SELECT snowflake_nextval() < snowflake_nextval()");
        assert_eq!(ascending, Ok(Some(true)));
    }
}

//! Data directories that are copied, and servers that replicate.

mod backup_tools;
mod both_ways;
mod citus;
mod data_directories;
mod logical;
mod patroni;
mod pg_upgrade;
mod standbys;
mod tools;

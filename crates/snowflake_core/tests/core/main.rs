//! Every test of the core but the models of loom, as one program: it is built once.

mod adopt;
mod architecture;
mod availability;
mod base62;
mod breaks;
mod common;
mod explorer;
mod guards;
mod keeper;
mod leasing;
mod locks;
mod marks;
mod model;
mod properties;
mod reading;
mod reservation;
mod scale;
mod scenarios;
mod simulation;
mod slow_disk;
mod startup;
mod steps;
mod stress;
mod writes;

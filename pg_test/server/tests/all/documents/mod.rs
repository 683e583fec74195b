//! The manual, and the programs that it speaks of.

mod clients;
mod drawing;
mod errors;
mod examples;
mod explorer;
mod javascript;
mod monitoring;
mod pages;
mod pools;
pub mod readers;
mod reading;
mod references;
mod site;
mod tables;

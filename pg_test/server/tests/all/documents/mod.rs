//! The manual, and the programs that it speaks of.

mod clients;
mod examples;
mod explorer;
mod harness;
mod javascript;
mod monitoring;
mod pools;
mod readers;
mod reading;
mod site;
mod words;

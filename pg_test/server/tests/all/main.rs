//! Every test on servers, as one program: it is linked once, and tests of all files run side by side. A test's name begins
//! with its folder and file.

mod clock;
mod convert;
mod copies;
mod database;
mod documents;
mod durability;
mod generate;
mod registry;

//! What a database has: the objects, their rights, its layout, dumps, partitions; and the generator without a library.

mod calls;
mod dumps;
mod layouts;
mod partitions;
mod planted_objects;
mod portable;
mod rights;
mod updates;

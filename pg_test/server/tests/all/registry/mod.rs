//! Servers whose workers a registry assigns.

mod contacts;
mod doubt;
mod histories;
mod installation;
mod nodes;
mod operators;
mod registrar;
mod replaces_lost;
mod servers;

//! Servers whose workers a registry assigns.

mod contacts;
mod histories;
mod registrar;
mod replaces_lost;
mod servers;

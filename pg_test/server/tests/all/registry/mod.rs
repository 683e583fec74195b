//! Servers whose workers a registry assigns.

mod configured_alike;
mod contacts;
mod failover;
mod histories;
mod installation;
mod nodes;
mod operators;
mod registrar;
mod servers;

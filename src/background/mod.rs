//! The background processes: the keeper reserves ahead of use, the registrar has contacts with the fleet's registry.

mod contact;
pub mod keeper;
mod lease;
pub mod registrar;

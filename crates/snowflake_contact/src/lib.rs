//! One contact with the fleet's registry: connect, one call, one answer, disconnect.
//!
//! libpq itself parses the connection string, so all of its features work: service and password files, TLS, several hosts,
//! `target_session_attrs`. libpq is loaded when a contact is made, because a server without it must start: the crate
//! `pq-sys` would make the server's loader require it, or add a second OpenSSL.
//!
//! [`contact`] blocks: libpq waits for name servers, Kerberos and LDAP without a limit. The caller runs it in a process
//! that it can kill.
//!
//! | module | job |
//! | --- | --- |
//! | `wire` | request and reply, as PostgreSQL's binary values |
//! | `call` | the steps of a contact |
//! | `libpq` | the library and its connections: the only unsafe code |
//! | `failure` | why there is no reply, in one line |
//! | `pace` | when the next contact is due |

mod call;
mod failure;
mod libpq;
mod pace;
mod wire;

pub use call::contact;
pub use failure::{Failure, Kind};
pub use pace::Pace;
pub use wire::{Reply, Request};

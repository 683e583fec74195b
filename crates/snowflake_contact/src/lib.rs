//! One contact with the fleet's registry: connect, one call, one answer, disconnect.
//!
//! libpq itself reads the connection string, so everything that libpq knows works: service and password files, TLS,
//! several hosts, `target_session_attrs`. libpq is loaded when a contact is made, because a server without it must
//! start: the crate `pq-sys` would make the server's loader look for it, or bring a second OpenSSL along.
//!
//! [`contact`] blocks: libpq waits for name servers, Kerberos and LDAP without a limit. The caller runs it in a process
//! that it can kill.
//!
//! | module | job |
//! | --- | --- |
//! | `wire` | what is asked and answered, as PostgreSQL's binary values |
//! | `call` | the steps of a contact |
//! | `libpq` | the library and its connections: the only unsafe code |
//! | `failure` | why there is no answer, in one line |
//! | `pace` | when the next contact is due |

mod call;
mod failure;
mod libpq;
mod pace;
mod wire;

pub use call::contact;
pub use failure::{Failure, Kind};
pub use pace::Pace;
pub use wire::{Reply, Request, Value};

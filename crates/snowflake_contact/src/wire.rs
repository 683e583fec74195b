//! Request and reply as binary values of PostgreSQL's protocol, which no setting of the registry's session can change.

use crate::failure::{Failure, Kind, one_line};
use serde::{Deserialize, Serialize};
use snowflake_core::{Answer, Contact, Layout, Lease};
use uuid::Uuid;

/// A contact, and the settings of the server that makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The contact.
    pub contact: Contact,
    /// PostgreSQL's identifier of the server's cluster, in 64 bits of either sign.
    pub system_identifier: i64,
    /// The server's name in the registry.
    pub node_name: String,
    /// The configured layout.
    pub layout: Layout,
    /// Backup workers of each server.
    pub backup_workers: i32,
    /// The configured datacenter.
    pub datacenter: i32,
    /// The server is a standby, or is in recovery.
    pub in_recovery: bool,
    /// The extension's version.
    pub version: &'static str,
}

/// The registry's answer, with a reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// The answer.
    pub answer: Answer,
    /// The reason in one line; empty after a grant.
    pub reason: String,
    /// The hint in one line; may be empty.
    pub hint: String,
}

/// A value in PostgreSQL's protocol.
pub struct Value {
    /// The OID of its type.
    pub(crate) of_type: u32,
    /// In the type's binary form; `None` is null.
    pub(crate) bytes: Option<Vec<u8>>,
}

const BOOL: u32 = 16;
const INT8: u32 = 20;
const INT4: u32 = 23;
const TEXT: u32 = 25;
const TIMESTAMPTZ: u32 = 1_184;
const UUID: u32 = 2_950;

/// PostgreSQL counts time from 2000-01-01, Unix from 1970-01-01: the difference in microseconds.
const POSTGRES_EPOCH_US: i64 = 946_684_800_000_000;

fn int4(number: impl Into<Option<i32>>) -> Value {
    Value { of_type: INT4, bytes: number.into().map(|number| number.to_be_bytes().to_vec()) }
}

fn int8(number: impl Into<Option<i64>>) -> Value {
    Value { of_type: INT8, bytes: number.into().map(|number| number.to_be_bytes().to_vec()) }
}

fn uuid(id: impl Into<Option<Uuid>>) -> Value {
    Value { of_type: UUID, bytes: id.into().map(|id| id.into_bytes().to_vec()) }
}

fn text(text: &str) -> Value {
    Value { of_type: TEXT, bytes: Some(text.as_bytes().to_vec()) }
}

fn timestamptz(unix_us: i64) -> Value {
    Value { of_type: TIMESTAMPTZ, ..int8(unix_us - POSTGRES_EPOCH_US) }
}

fn boolean(truth: bool) -> Value {
    Value { of_type: BOOL, bytes: Some(vec![truth.into()]) }
}

impl Request {
    /// The arguments of `snowflake_registry_contact`, in its order.
    pub(crate) fn arguments(&self, clock_us: i64) -> Vec<Value> {
        let Contact { registry, node, number, nonce, lease } = self.contact;
        vec![
            uuid(registry),
            int8(self.system_identifier),
            uuid(node),
            text(&self.node_name),
            int8(number),
            uuid(nonce),
            int4(lease.map(|lease| lease.home as i32)),
            int8(lease.map(|lease| lease.floor)),
            int8(lease.map(|lease| lease.until)),
            timestamptz(clock_us),
            text(&self.layout.bits().to_string()),
            int4(self.layout.tick().millis() as i32),
            timestamptz(self.layout.epoch_us()),
            int4(self.backup_workers),
            int4(self.datacenter),
            boolean(self.in_recovery),
            text(self.version),
        ]
    }
}

/// The columns that an answer needs, in the order in which [`Reply::from_row`] reads them.
pub const COLUMNS: [&str; 7] = ["answer", "registry", "worker_id", "floor", "until", "detail", "hint"];

/// A column as the registry sent it, in its type's binary form.
pub type Column = Option<Vec<u8>>;

fn unreadable(why: impl AsRef<str>) -> Failure {
    Failure::new(Kind::Answer, format!("the registry's answer cannot be read: {}", why.as_ref()))
}

/// The value of a column that this kind of answer must have.
fn not_null<T>(value: Option<T>, name: &str) -> Result<T, Failure> {
    value.ok_or_else(|| unreadable(format!("its {name} is null")))
}

fn exact_bytes<const N: usize>(column: &Column, name: &str) -> Result<[u8; N], Failure> {
    let bytes = not_null(column.as_deref(), name)?;
    bytes.try_into().map_err(|_| unreadable(format!("its {name} has a length of {} bytes", bytes.len())))
}

fn short_text(column: &Column, name: &str) -> Result<Option<String>, Failure> {
    let Some(bytes) = column else { return Ok(None) };
    let text = std::str::from_utf8(bytes).map_err(|_| unreadable(format!("its {name} is not UTF-8")))?;
    Ok(Some(one_line(text)))
}

impl Reply {
    /// Reads the only row of a result.
    pub(crate) fn from_row(row: &[Column]) -> Result<Self, Failure> {
        let [answer, registry, worker, floor, until, detail, hint] = row else {
            return Err(unreadable(format!("it has {} columns", row.len())));
        };
        let (reason, hint) = (short_text(detail, "detail")?, short_text(hint, "hint")?.unwrap_or_default());
        let answer = match not_null(short_text(answer, "answer")?, "answer")?.as_str() {
            "granted" => {
                let registry = Uuid::from_bytes(exact_bytes(registry, "registry")?);
                let home = i32::from_be_bytes(exact_bytes(worker, "worker_id")?).into();
                let floor = i64::from_be_bytes(exact_bytes(floor, "floor")?);
                let until = i64::from_be_bytes(exact_bytes(until, "until")?);
                if home < 0 || until < floor {
                    return Err(unreadable(format!("worker {home} from {floor} to {until} is no lease")));
                }
                let answer = Answer::Granted { registry, lease: Lease { home, floor, until } };
                return Ok(Self { answer, reason: String::new(), hint: String::new() });
            }
            "over" => Answer::Over,
            "refused" => Answer::Refused,
            other => return Err(unreadable(format!("\"{other}\" is no answer"))),
        };
        Ok(Self { answer, reason: not_null(reason, "detail")?, hint })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGISTRY: Uuid = Uuid::from_u128(7 << 100);

    fn row(change: impl FnOnce(&mut Vec<Column>)) -> Result<Reply, Failure> {
        let bytes = [
            b"granted".to_vec(),
            REGISTRY.into_bytes().to_vec(),
            3_i32.to_be_bytes().to_vec(),
            (-5_i64).to_be_bytes().to_vec(),
            i64::MAX.to_be_bytes().to_vec(),
            b"more\nlines".to_vec(),
            b"do\nthis".to_vec(),
        ];
        let mut columns: Vec<Column> = bytes.into_iter().map(Some).collect();
        change(&mut columns);
        Reply::from_row(&columns)
    }

    fn grant(home: i64, floor: i64, until: i64) -> Reply {
        let answer = Answer::Granted { registry: REGISTRY, lease: Lease { home, floor, until } };
        Reply { answer, reason: String::new(), hint: String::new() }
    }

    #[test]
    fn the_three_answers_are_read() {
        assert_eq!(row(|_| ()), Ok(grant(3, -5, i64::MAX)));
        let bare = row(|row| row[5..].fill(None));
        assert_eq!(bare, Ok(grant(3, -5, i64::MAX)), "a grant needs no words");
        let least = row(|row| (row[2], row[4]) = (Some(vec![0; 4]), row[3].clone()));
        assert_eq!(least, Ok(grant(0, -5, -5)), "worker 0, and a lease of one tick");
        for (text, answer) in [("over", Answer::Over), ("refused", Answer::Refused)] {
            let reply = Reply { answer, reason: "more; lines".into(), hint: "do; this".into() };
            assert_eq!(row(|row| row[0] = Some(text.into())), Ok(reply));
        }
    }

    #[test]
    fn what_is_not_an_answer_is_a_failure_that_says_why() {
        let fails = |change: &dyn Fn(&mut Vec<Column>), why: &str| {
            let failure = row(|row| change(row)).expect_err(why);
            assert_eq!(failure.kind, Kind::Answer);
            assert_eq!(failure.text, format!("the registry's answer cannot be read: {why}"));
        };
        for (at, name) in COLUMNS.iter().enumerate().take(5) {
            fails(&|row| row[at] = None, &format!("its {name} is null"));
            if at > 0 {
                fails(&|row| row[at] = Some(vec![0; 3]), &format!("its {name} has a length of 3 bytes"));
            }
        }
        fails(&|row| row[0] = Some(b"perhaps".to_vec()), "\"perhaps\" is no answer");
        for at in [0, 5, 6] {
            fails(&|row| row[at] = Some(vec![0xff]), &format!("its {} is not UTF-8", COLUMNS[at]));
        }
        fails(&|row| row[2] = Some(vec![0xff; 4]), "worker -1 from -5 to 9223372036854775807 is no lease");
        fails(&|row| row[4] = Some((-6_i64).to_be_bytes().to_vec()), "worker 3 from -5 to -6 is no lease");
        fails(&Vec::clear, "it has 0 columns");
        let silent = |row: &mut Vec<Column>| (row[0], row[5]) = (Some(b"refused".to_vec()), None);
        fails(&silent, "its detail is null");
    }

    #[test]
    fn a_contact_that_claims_shows_no_lease() {
        let lease = Some(Lease { home: 1, floor: 2, until: 3 });
        let (node, nonce) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let mut request = Request {
            contact: Contact { registry: None, node, number: 1, nonce, lease },
            system_identifier: -1,
            node_name: "a".into(),
            layout: Layout::default(),
            backup_workers: 3,
            datacenter: 0,
            in_recovery: true,
            version: "1.0.0",
        };
        let nulls = |request: &Request| -> Vec<usize> {
            let values = request.arguments(0);
            assert_eq!(values.len(), 17);
            (0..17).filter(|i| values[*i].bytes.is_none()).collect()
        };
        assert_eq!(nulls(&request), [0]);
        request.contact.lease = None;
        assert_eq!(nulls(&request), [0, 6, 7, 8]);
    }

    #[test]
    fn a_result_survives_the_way_between_two_processes() {
        let result: Result<Reply, Failure> = Ok(grant(i32::MAX.into(), i64::MIN, i64::MAX));
        let text = serde_json::to_string(&result).expect("plain data");
        assert_eq!(serde_json::from_str::<Result<Reply, Failure>>(&text).expect("the same"), result);
    }
}

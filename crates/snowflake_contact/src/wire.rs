//! What a node asks and what the registry answers, as the binary values of PostgreSQL's protocol, which no setting of the
//! registry's session can change.

use crate::failure::{Failure, Kind, one_line};
use serde::{Deserialize, Serialize};
use snowflake_core::{Answer, Contact, Layout, Lease};
use uuid::Uuid;

/// A contact, and what the registry has to know of the server that makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The contact.
    pub contact: Contact,
    /// The server has given up the lease that the contact shows, and generated no ID above its `until`.
    pub releases: bool,
    /// What the server is called.
    pub node_name: String,
    /// The configured layout.
    pub layout: Layout,
    /// Backup workers of each server.
    pub backup_workers: i32,
    /// The configured datacenter.
    pub datacenter: i32,
    /// The server is a standby, or still recovers.
    pub in_recovery: bool,
    /// The extension's version.
    pub version: &'static str,
}

/// The registry's answer, and what it says about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// The answer.
    pub answer: Answer,
    /// Why, in one line; empty where it says nothing.
    pub said: String,
    /// What to do about it, in one line; empty likewise.
    pub hint: String,
}

/// A value in PostgreSQL's protocol.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
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

fn value(of_type: u32, bytes: Option<Vec<u8>>) -> Value {
    Value { of_type, bytes }
}

fn int4(number: impl Into<Option<i32>>) -> Value {
    value(INT4, number.into().map(|number| number.to_be_bytes().to_vec()))
}

fn int8(number: impl Into<Option<i64>>) -> Value {
    value(INT8, number.into().map(|number| number.to_be_bytes().to_vec()))
}

fn uuid(id: impl Into<Option<Uuid>>) -> Value {
    value(UUID, id.into().map(|id| id.into_bytes().to_vec()))
}

fn text(text: &str) -> Value {
    value(TEXT, Some(text.as_bytes().to_vec()))
}

fn timestamptz(unix_us: i64) -> Value {
    value(TIMESTAMPTZ, Some(unix_us.saturating_sub(POSTGRES_EPOCH_US).to_be_bytes().to_vec()))
}

fn boolean(truth: bool) -> Value {
    value(BOOL, Some(vec![truth.into()]))
}

impl Request {
    /// The arguments of `snowflake_registry_contact`, in its order.
    pub fn arguments(&self) -> Vec<Value> {
        let Contact { registry, node, number, nonce, lease, clock_us } = self.contact;
        vec![
            uuid(registry),
            uuid(node),
            text(&self.node_name),
            int8(number),
            uuid(nonce),
            int4(lease.map(|lease| lease.home as i32)),
            int8(lease.map(|lease| lease.floor)),
            int8(lease.map(|lease| lease.until)),
            boolean(self.releases),
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

/// The columns that an answer needs, with their types, in the order in which [`Reply::from_row`] reads them.
pub const COLUMNS: [(&str, u32); 7] = [
    ("answer", TEXT),
    ("registry", UUID),
    ("worker_id", INT4),
    ("floor", INT8),
    ("until", INT8),
    ("detail", TEXT),
    ("hint", TEXT),
];

/// The most bytes that a text of an answer may have.
const LONGEST_TEXT: usize = 4_096;

/// A column as the registry sent it: the OID of its type, and its value in binary form.
pub type Column = (u32, Option<Vec<u8>>);

struct Row<'a>(&'a [Column]);

impl Row<'_> {
    /// The bytes of a column; a type of another name or size is no answer of ours.
    fn bytes(&self, name: &str) -> Result<Option<&[u8]>, Failure> {
        let at = COLUMNS.iter().position(|(column, _)| *column == name).expect("a column of an answer");
        let Some((of_type, bytes)) = self.0.get(at) else { return Err(bad(format!("it has no {name}"))) };
        if *of_type != COLUMNS[at].1 {
            return Err(bad(format!("its {name} has the type {of_type}")));
        }
        Ok(bytes.as_deref())
    }

    fn sized<const N: usize>(&self, name: &str) -> Result<Option<[u8; N]>, Failure> {
        let read = |bytes: &[u8]| {
            bytes.try_into().map_err(|_| bad(format!("its {name} has a length of {} bytes", bytes.len())))
        };
        self.bytes(name)?.map(read).transpose()
    }

    fn text(&self, name: &str) -> Result<Option<String>, Failure> {
        let Some(bytes) = self.bytes(name)? else { return Ok(None) };
        if bytes.len() > LONGEST_TEXT {
            return Err(bad(format!("its {name} has a length of {} bytes", bytes.len())));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| bad(format!("its {name} is not UTF-8")))?;
        Ok(Some(one_line(text)))
    }

    fn int8(&self, name: &str) -> Result<Option<i64>, Failure> {
        Ok(self.sized(name)?.map(i64::from_be_bytes))
    }
}

fn bad(why: impl AsRef<str>) -> Failure {
    Failure::new(Kind::Answer, format!("the registry's answer cannot be read: {}", why.as_ref()))
}

/// The value of a column that this kind of answer must have.
fn needed<T>(value: Option<T>, name: &str) -> Result<T, Failure> {
    value.ok_or_else(|| bad(format!("its {name} is null")))
}

impl Reply {
    /// Reads the only row of a result.
    pub(crate) fn from_row(columns: &[Column]) -> Result<Self, Failure> {
        let row = Row(columns);
        let answer = needed(row.text("answer")?, "answer")?;
        let (said, hint) = (row.text("detail")?, row.text("hint")?.unwrap_or_default());
        match answer.as_str() {
            "granted" => Ok(Self { answer: granted(&row)?, said: String::new(), hint: String::new() }),
            "over" => Ok(Self { answer: Answer::Over, said: said.unwrap_or_default(), hint }),
            "refused" => Ok(Self { answer: Answer::Refused, said: needed(said, "detail")?, hint }),
            other => Err(bad(format!("\"{other}\" is no answer"))),
        }
    }
}

fn granted(row: &Row<'_>) -> Result<Answer, Failure> {
    let worker = needed(row.sized("worker_id")?.map(i32::from_be_bytes), "worker_id")?;
    let floor = needed(row.int8("floor")?, "floor")?;
    let until = needed(row.int8("until")?, "until")?;
    if worker < 0 {
        return Err(bad(format!("its worker_id is {worker}")));
    }
    if until < floor {
        return Err(bad(format!("its until, {until}, is below its floor, {floor}")));
    }
    let registry = needed(row.sized("registry")?.map(Uuid::from_bytes), "registry")?;
    Ok(Answer::Granted { registry, lease: Lease { home: worker.into(), floor, until } })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(change: impl FnOnce(&mut Vec<Column>)) -> Result<Reply, Failure> {
        let bytes = [
            b"granted".to_vec(),
            7_u128.to_be_bytes().to_vec(),
            3_i32.to_be_bytes().to_vec(),
            (-5_i64).to_be_bytes().to_vec(),
            i64::MAX.to_be_bytes().to_vec(),
            b"more\nlines".to_vec(),
            b"do\nthis".to_vec(),
        ];
        let mut columns: Vec<Column> =
            COLUMNS.iter().zip(bytes).map(|((_, of_type), bytes)| (*of_type, Some(bytes))).collect();
        change(&mut columns);
        Reply::from_row(&columns)
    }

    fn grant(home: i64, floor: i64, until: i64) -> Reply {
        let answer = Answer::Granted { registry: Uuid::from_u128(7), lease: Lease { home, floor, until } };
        Reply { answer, said: String::new(), hint: String::new() }
    }

    fn at(name: &str) -> usize {
        COLUMNS.iter().position(|(column, _)| *column == name).expect("a column")
    }

    #[test]
    fn the_three_answers_are_read() {
        assert_eq!(row(|_| ()), Ok(grant(3, -5, i64::MAX)));
        let (said, hint) = ("more; lines".to_owned(), "do; this".to_owned());
        let over = row(|row| row[0].1 = Some(b"over".to_vec()));
        assert_eq!(over, Ok(Reply { answer: Answer::Over, said: said.clone(), hint: hint.clone() }));
        let refused = row(|row| row[0].1 = Some(b"refused".to_vec()));
        assert_eq!(refused, Ok(Reply { answer: Answer::Refused, said, hint }));
    }

    /// The registry tells more than a node needs. What it leaves out of that makes no grant unreadable.
    #[test]
    fn a_grant_needs_nothing_that_the_node_does_not_use() {
        let bare = row(|row| ["detail", "hint"].iter().for_each(|name| row[at(name)].1 = None));
        assert_eq!(bare, Ok(grant(3, -5, i64::MAX)));
    }

    #[test]
    fn what_is_not_an_answer_is_a_failure_that_says_why() {
        let fails = |change: &dyn Fn(&mut Vec<Column>), why: &str| {
            let failure = row(|row| change(row)).expect_err(why);
            assert_eq!(failure.kind, Kind::Answer);
            assert!(failure.text.ends_with(why), "{failure} instead of {why}");
        };
        for name in ["answer", "registry", "worker_id", "floor", "until"] {
            fails(&|row| row[at(name)].1 = None, &format!("its {name} is null"));
        }
        for (name, of_type) in &COLUMNS[..5] {
            fails(&|row| row[at(name)].0 = 17, &format!("its {name} has the type 17"));
            if *of_type != TEXT {
                fails(
                    &|row| row[at(name)].1 = Some(vec![0; 3]),
                    &format!("its {name} has a length of 3 bytes"),
                );
            }
        }
        fails(&|row| row[0].1 = Some(b"perhaps".to_vec()), "\"perhaps\" is no answer");
        fails(&|row| row[0].1 = Some(vec![0xff]), "its answer is not UTF-8");
        fails(&|row| row[at("detail")].1 = Some(vec![b'x'; 5_000]), "its detail has a length of 5000 bytes");
        fails(&|row| row[at("worker_id")].1 = Some(vec![0xff; 4]), "its worker_id is -1");
        fails(
            &|row| {
                row[at("until")].1 = Some(vec![0xff; 8]).map(|mut low: Vec<u8>| {
                    low[7] = 0;
                    low
                })
            },
            "its until, -256, is below its floor, -5",
        );
        fails(&Vec::clear, "it has no answer");
        let silent = row(|row| {
            row[0].1 = Some(b"refused".to_vec());
            row[at("detail")].1 = None;
        });
        assert!(silent.expect_err("no reason").text.ends_with("its detail is null"));
    }

    #[test]
    fn a_contact_that_claims_shows_no_lease() {
        let lease = Some(Lease { home: 1, floor: 2, until: 3 });
        let (node, nonce) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let mut request = Request {
            contact: Contact { registry: None, node, number: 1, nonce, lease, clock_us: 0 },
            releases: false,
            node_name: "a".into(),
            layout: Layout::default(),
            backup_workers: 3,
            datacenter: 0,
            in_recovery: true,
            version: "1.0.0",
        };
        let nulls = |request: &Request| -> Vec<usize> {
            let values = request.arguments();
            assert_eq!(values.len(), 17);
            (0..17).filter(|i| values[*i].bytes.is_none()).collect()
        };
        assert_eq!(nulls(&request), [0]);
        request.contact.lease = None;
        assert_eq!(nulls(&request), [0, 5, 6, 7]);
    }

    #[test]
    fn a_result_survives_the_way_between_two_processes() {
        let result: Result<Reply, Failure> = Ok(grant(i32::MAX.into(), i64::MIN, i64::MAX));
        let text = serde_json::to_string(&result).expect("plain data");
        assert_eq!(serde_json::from_str::<Result<Reply, Failure>>(&text).expect("the same"), result);
        let values = vec![super::text("a"), int4(None)];
        let sent = serde_json::to_string(&values).expect("plain data");
        assert_eq!(serde_json::from_str::<Vec<Value>>(&sent).expect("the same"), values);
    }
}

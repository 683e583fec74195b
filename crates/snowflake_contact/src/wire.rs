//! What a node asks and what the registry answers: typed values, and the binary values of PostgreSQL's protocol, which
//! no setting of the registry's session can change.

use crate::failure::{Failure, Kind, one_line};
use serde::{Deserialize, Serialize};

/// A lease as the node has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The home worker of the leased group.
    pub worker: i32,
    /// The tick at or below which the node makes no ID with it.
    pub floor: i64,
    /// The last tick that the node may use.
    pub until: i64,
}

/// One contact, as the node makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The registry that the node knows; `None` before its first contact.
    pub registry: Option<u128>,
    /// The node's own ID.
    pub node: u128,
    /// What the node is called.
    pub node_name: String,
    /// The number of this contact, one higher than the last.
    pub number: i64,
    /// Drawn for this contact.
    pub nonce: u128,
    /// The lease to renew; `None` claims one.
    pub lease: Option<Lease>,
    /// The node's wall clock: Unix time in microseconds.
    pub clock_us: i64,
    /// The bits of the layout, as `41/10/12`.
    pub layout: String,
    /// The layout's tick in milliseconds.
    pub tick_ms: i32,
    /// The layout's epoch: Unix time in microseconds.
    pub epoch_us: i64,
    /// Backup workers of each server.
    pub backup_workers: i32,
    /// The configured datacenter.
    pub datacenter: i32,
    /// The configured worker; `None` takes any.
    pub wanted_worker: Option<i32>,
    /// The node is a standby, or still recovers.
    pub in_recovery: bool,
    /// The extension's version.
    pub version: String,
    /// PostgreSQL's system identifier.
    pub system_identifier: u64,
}

/// The registry's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The node has the lease up to `until`.
    Granted {
        /// The registry that granted it.
        registry: u128,
        /// The home worker of the leased group.
        worker: i32,
        /// The tick at or below which the node makes no ID with it.
        floor: i64,
        /// The last tick that the node may use.
        until: i64,
        /// The registry's wall clock: Unix time in microseconds.
        registry_clock_us: i64,
    },
    /// The node's lease is over, and so is the node's ID.
    Over {
        /// Why, in one line.
        reason: Option<String>,
        /// More about it, in one line.
        detail: Option<String>,
        /// What to do about it, in one line.
        hint: Option<String>,
    },
    /// No lease now; the one that the node has is unchanged.
    Refused {
        /// Why, in one line.
        reason: String,
        /// More about it, in one line.
        detail: Option<String>,
        /// What to do about it, in one line.
        hint: Option<String>,
        /// When a group comes free: Unix time in microseconds.
        free_at_us: Option<i64>,
    },
}

/// A value in PostgreSQL's protocol.
#[derive(Debug, PartialEq, Eq)]
pub struct Value {
    /// The OID of its type.
    pub of_type: u32,
    /// `None` is null.
    pub bytes: Option<Vec<u8>>,
    /// In the type's binary form; otherwise a text that ends in a zero byte.
    pub is_binary: bool,
}

const BOOL: u32 = 16;
const INT8: u32 = 20;
const INT4: u32 = 23;
const TEXT: u32 = 25;
const TIMESTAMPTZ: u32 = 1_184;
const NUMERIC: u32 = 1_700;
const UUID: u32 = 2_950;

/// PostgreSQL counts time from 2000-01-01, Unix from 1970-01-01: the difference in microseconds.
const POSTGRES_EPOCH_US: i64 = 946_684_800_000_000;

fn value(of_type: u32, bytes: Option<Vec<u8>>) -> Value {
    Value { of_type, bytes, is_binary: true }
}

fn int4(number: impl Into<Option<i32>>) -> Value {
    value(INT4, number.into().map(|number| number.to_be_bytes().to_vec()))
}

fn int8(number: impl Into<Option<i64>>) -> Value {
    value(INT8, number.into().map(|number| number.to_be_bytes().to_vec()))
}

fn uuid(id: impl Into<Option<u128>>) -> Value {
    value(UUID, id.into().map(|id| id.to_be_bytes().to_vec()))
}

fn text(text: &str) -> Value {
    value(TEXT, Some(text.as_bytes().to_vec()))
}

fn timestamptz(unix_us: i64) -> Value {
    value(TIMESTAMPTZ, Some(unix_us.saturating_sub(POSTGRES_EPOCH_US).to_be_bytes().to_vec()))
}

fn numeric(number: u64) -> Value {
    Value { of_type: NUMERIC, bytes: Some(format!("{number}\0").into_bytes()), is_binary: false }
}

impl Request {
    /// The arguments of `snowflake_registry_contact`, in its order.
    pub(crate) fn arguments(&self) -> Vec<Value> {
        let lease = self.lease;
        vec![
            uuid(self.registry),
            uuid(self.node),
            text(&self.node_name),
            int8(self.number),
            uuid(self.nonce),
            int4(lease.map(|lease| lease.worker)),
            int8(lease.map(|lease| lease.floor)),
            int8(lease.map(|lease| lease.until)),
            timestamptz(self.clock_us),
            text(&self.layout),
            int4(self.tick_ms),
            timestamptz(self.epoch_us),
            int4(self.backup_workers),
            int4(self.datacenter),
            int4(self.wanted_worker),
            value(BOOL, Some(vec![u8::from(self.in_recovery)])),
            text(&self.version),
            numeric(self.system_identifier),
        ]
    }
}

/// The columns that an answer needs, with their types, in the order in which [`Answer::from_row`] reads them.
pub const COLUMNS: [(&str, u32); 10] = [
    ("answer", TEXT),
    ("registry", UUID),
    ("worker_id", INT4),
    ("floor", INT8),
    ("until", INT8),
    ("registry_clock", TIMESTAMPTZ),
    ("reason", TEXT),
    ("detail", TEXT),
    ("hint", TEXT),
    ("free_at", TIMESTAMPTZ),
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

    /// Unix time in microseconds.
    fn time(&self, name: &str) -> Result<Option<i64>, Failure> {
        let finite = |bytes| match i64::from_be_bytes(bytes) {
            i64::MIN | i64::MAX => Err(bad(format!("its {name} is infinite"))),
            micros => Ok(micros.saturating_add(POSTGRES_EPOCH_US)),
        };
        self.sized(name)?.map(finite).transpose()
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

impl Answer {
    /// Reads the only row of a result.
    pub(crate) fn from_row(columns: &[Column]) -> Result<Self, Failure> {
        let row = Row(columns);
        let answer = needed(row.text("answer")?, "answer")?;
        let reason = row.text("reason")?;
        let detail = row.text("detail")?;
        let hint = row.text("hint")?;
        match answer.as_str() {
            "granted" => Self::granted(&row),
            "over" => Ok(Self::Over { reason, detail, hint }),
            "refused" => Ok(Self::Refused {
                reason: needed(reason, "reason")?,
                detail,
                hint,
                free_at_us: row.time("free_at")?,
            }),
            other => Err(bad(format!("\"{}\" is no answer", one_line(other)))),
        }
    }

    fn granted(row: &Row<'_>) -> Result<Self, Failure> {
        let worker = needed(row.sized("worker_id")?.map(i32::from_be_bytes), "worker_id")?;
        let floor = needed(row.int8("floor")?, "floor")?;
        let until = needed(row.int8("until")?, "until")?;
        if worker < 0 {
            return Err(bad(format!("its worker_id is {worker}")));
        }
        if until < floor {
            return Err(bad(format!("its until, {until}, is below its floor, {floor}")));
        }
        Ok(Self::Granted {
            registry: needed(row.sized("registry")?.map(u128::from_be_bytes), "registry")?,
            worker,
            floor,
            until,
            registry_clock_us: needed(row.time("registry_clock")?, "registry_clock")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(change: impl FnOnce(&mut Vec<Column>)) -> Result<Answer, Failure> {
        let bytes = [
            b"granted".to_vec(),
            7_u128.to_be_bytes().to_vec(),
            3_i32.to_be_bytes().to_vec(),
            (-5_i64).to_be_bytes().to_vec(),
            i64::MAX.to_be_bytes().to_vec(),
            1_000_000_i64.to_be_bytes().to_vec(),
            b"why".to_vec(),
            b"more\nlines".to_vec(),
            b"do\nthis".to_vec(),
            0_i64.to_be_bytes().to_vec(),
        ];
        let mut columns: Vec<Column> =
            COLUMNS.iter().zip(bytes).map(|((_, of_type), bytes)| (*of_type, Some(bytes))).collect();
        change(&mut columns);
        Answer::from_row(&columns)
    }

    fn at(name: &str) -> usize {
        COLUMNS.iter().position(|(column, _)| *column == name).expect("a column")
    }

    #[test]
    fn the_three_answers_are_read() {
        let granted = Answer::Granted {
            registry: 7,
            worker: 3,
            floor: -5,
            until: i64::MAX,
            registry_clock_us: POSTGRES_EPOCH_US + 1_000_000,
        };
        assert_eq!(row(|_| ()), Ok(granted));
        let [detail, hint] = ["more; lines", "do; this"].map(|text| Some(text.to_owned()));
        let over = row(|row| row[0].1 = Some(b"over".to_vec()));
        assert_eq!(
            over,
            Ok(Answer::Over { reason: Some("why".into()), detail: detail.clone(), hint: hint.clone() })
        );
        let refused = row(|row| row[0].1 = Some(b"refused".to_vec()));
        let free_at_us = Some(POSTGRES_EPOCH_US);
        assert_eq!(refused, Ok(Answer::Refused { reason: "why".into(), detail, hint, free_at_us }));
    }

    #[test]
    fn what_is_not_an_answer_is_a_failure_that_says_why() {
        let fails = |change: &dyn Fn(&mut Vec<Column>), why: &str| {
            let failure = row(|row| change(row)).expect_err(why);
            assert_eq!(failure.kind, Kind::Answer);
            assert!(failure.text.ends_with(why), "{failure} instead of {why}");
        };
        for name in ["answer", "registry", "worker_id", "floor", "until", "registry_clock"] {
            fails(&|row| row[at(name)].1 = None, &format!("its {name} is null"));
        }
        for (name, of_type) in &COLUMNS[..6] {
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
        for infinite in [i64::MIN, i64::MAX] {
            let bytes = infinite.to_be_bytes().to_vec();
            fails(&|row| row[at("registry_clock")].1 = Some(bytes.clone()), "its registry_clock is infinite");
        }
        fails(&Vec::clear, "it has no answer");
        let silent = row(|row| (row[0].1, row[at("reason")].1) = (Some(b"refused".to_vec()), None));
        assert!(silent.expect_err("no reason").text.ends_with("its reason is null"));
    }

    #[test]
    fn a_contact_that_claims_shows_no_lease() {
        let lease = Some(Lease { worker: 1, floor: 2, until: 3 });
        let mut request = Request {
            registry: None,
            node: 1,
            node_name: "a".into(),
            number: 1,
            nonce: 2,
            lease,
            clock_us: 0,
            layout: "41/10/12".into(),
            tick_ms: 1,
            epoch_us: 0,
            backup_workers: 3,
            datacenter: 0,
            wanted_worker: None,
            in_recovery: true,
            version: "1.0.0".into(),
            system_identifier: u64::MAX,
        };
        let nulls = |request: &Request| -> Vec<usize> {
            let values = request.arguments();
            assert_eq!(values.len(), 18);
            (0..18).filter(|i| values[*i].bytes.is_none()).collect()
        };
        assert_eq!(nulls(&request), [0, 14]);
        request.lease = None;
        assert_eq!(nulls(&request), [0, 5, 6, 7, 14]);
        assert_eq!(request.arguments()[17].bytes.as_deref(), Some(&b"18446744073709551615\0"[..]));
    }

    #[test]
    fn a_result_survives_the_way_between_two_processes() {
        let result: Result<Answer, Failure> = Ok(Answer::Granted {
            registry: u128::MAX,
            worker: i32::MAX,
            floor: i64::MIN,
            until: i64::MAX,
            registry_clock_us: 0,
        });
        let text = serde_json::to_string(&result).expect("plain data");
        assert_eq!(serde_json::from_str::<Result<Answer, Failure>>(&text).expect("the same"), result);
    }
}

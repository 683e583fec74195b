//! What callgrind has counted, out of one of its dumps.
//!
//! In its format, a line of numbers is the cost of the function itself; one after `calls=` is the cost of the called
//! function with everything that it called. A name is written out where it occurs first, and has a number from then on.

use anyhow::{Context, Result};
use std::collections::HashMap;

/// The instructions of one dump.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Of the library's own functions.
    pub own: i64,
    /// How many calls leave the library.
    pub out: i64,
}

/// The names of objects by their number.
#[derive(Default)]
struct Names(HashMap<String, String>);

impl Names {
    /// The name in "(12) name", or that which had the same number before, in "(12)".
    fn of(&mut self, text: &str) -> String {
        let (number, name) = match text.split_once(") ") {
            Some((number, name)) => (number, Some(name)),
            None => (text.trim_end_matches(')'), None),
        };
        if let Some(name) = name {
            self.0.insert(number.to_owned(), name.to_owned());
        }
        self.0.get(number).cloned().unwrap_or_default()
    }
}

fn is_library(object: &str) -> bool {
    object.ends_with("/snowflake_id.so")
}

/// # Errors
/// A line of numbers that has none.
pub fn read(dump: &str) -> Result<Counts> {
    let (mut names, mut counts) = (Names::default(), Counts::default());
    let (mut object, mut called_object) = (String::new(), String::new());
    let mut calls = None;
    for line in dump.lines() {
        match line.split_once('=') {
            Some(("ob", text)) => {
                object = names.of(text);
                called_object.clone_from(&object);
            }
            Some(("fn", _)) => called_object.clone_from(&object),
            Some(("cob", text)) => called_object = names.of(text),
            Some(("calls", text)) => calls = Some(number(text.split(' ').next(), line)?),
            _ if line.starts_with(|c: char| c.is_ascii_digit() || "+*-".contains(c)) => {
                let cost = number(line.split(' ').nth(1), line)?;
                match calls.take() {
                    None if is_library(&object) => counts.own += cost,
                    Some(calls) if is_library(&object) && !is_library(&called_object) => counts.out += calls,
                    _ => {}
                }
                called_object.clone_from(&object);
            }
            _ => {}
        }
    }
    Ok(counts)
}

fn number(text: Option<&str>, line: &str) -> Result<i64> {
    text.unwrap_or_default().parse().with_context(|| format!("no number in callgrind's {line:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// postgres calls the library three times; the library calls itself, libc twice, and reads the clock.
    const DUMP: &str = "\
version: 1
events: Ir

ob=(1) /usr/lib/postgresql/15/bin/postgres
fl=(1) executor.c
fn=(1) ExecInterpExpr
16 100
+2 5
cob=(2) /usr/lib/postgresql/15/lib/snowflake_id.so
cfn=(2) snowflake_nextval
calls=3 0
16 390

ob=(2)
fn=(2)
* 60
cfn=(3) generate
calls=3 0
* 300
fn=(3)
0 30
cob=(3) /lib/libc.so.6
cfn=(4) memcpy@@GLIBC_2.14
calls=2 0
0 20
cob=(4) /lib/libfaketime.so.1
cfn=(5) clock_gettime
calls=3 0
0 240

ob=(4)
fn=(5)
0 140
cob=(3)
cfn=(6) time
calls=1 0
0 100
ob=(3)
fn=(6)
0 100
fn=(4)
0 20
";

    #[test]
    fn own_instructions_and_calls_out_are_those_of_the_library() {
        let counts = read(DUMP).unwrap();
        assert_eq!((counts.own, counts.out), (60 + 30, 2 + 3));
    }

    #[test]
    fn a_line_without_its_number_is_an_error() {
        assert!(read("fn=(1) f\n16 many\n").is_err());
    }
}

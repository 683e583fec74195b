//! libpq, loaded at run time, and its connections.
//!
//! The result of a query is used only after libpq has seen the end of its transaction: `PQexecParams` returns when the
//! server is ready for the next query, and if the commit fails, or the connection breaks before it, the last result is
//! an error although the row came before.

// libpq is C.
#![allow(unsafe_code)]

use crate::failure::{Failure, Kind, about_connection, about_string, one_line};
use crate::wire::{Column, Value};
use libloading::Library;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr;

macro_rules! functions {
    ($($name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions of libpq that are used, under libpq's names.
        #[allow(non_snake_case)]
        pub struct Libpq {
            $($name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Libpq {
            /// # Safety
            /// The library's functions of these names have these types, and it stays loaded.
            unsafe fn of(library: &Library) -> Result<Self, libloading::Error> {
                // SAFETY: by this function's contract.
                unsafe {
                    Ok(Self { $($name: *library.get(concat!(stringify!($name), "\0").as_bytes())?,)* })
                }
            }
        }
    };
}

type Conn = c_void;
type Res = c_void;
type ConninfoOptions = c_void;
type Strings = *const *const c_char;

functions! {
    PQconninfoParse(*const c_char, *mut *mut c_char) -> *mut ConninfoOptions;
    PQconninfoFree(*mut ConninfoOptions);
    PQfreemem(*mut c_void);
    PQconnectdbParams(Strings, Strings, c_int) -> *mut Conn;
    PQstatus(*const Conn) -> c_int;
    PQerrorMessage(*const Conn) -> *const c_char;
    PQsetNoticeReceiver(*mut Conn, extern "C" fn(*mut c_void, *const Res), *mut c_void) -> *mut c_void;
    PQexecParams(
        *mut Conn, *const c_char, c_int, *const u32, Strings, *const c_int, *const c_int, c_int
    ) -> *mut Res;
    PQresultStatus(*const Res) -> c_int;
    PQresultErrorField(*const Res, c_int) -> *const c_char;
    PQntuples(*const Res) -> c_int;
    PQnfields(*const Res) -> c_int;
    PQgetisnull(*const Res, c_int, c_int) -> c_int;
    PQgetlength(*const Res, c_int, c_int) -> c_int;
    PQgetvalue(*const Res, c_int, c_int) -> *const c_char;
    PQclear(*mut Res);
    PQfinish(*mut Conn);
}

// From libpq-fe.h and postgres_ext.h; libpq never changes them.
const CONNECTION_OK: c_int = 0;
const PGRES_COMMAND_OK: c_int = 1;
const PGRES_TUPLES_OK: c_int = 2;
const PG_DIAG_MESSAGE_PRIMARY: c_int = b'M' as c_int;
const PG_DIAG_MESSAGE_HINT: c_int = b'H' as c_int;
const PG_DIAG_SQLSTATE: c_int = b'C' as c_int;
const INSUFFICIENT_PRIVILEGE: &str = "42501";
const UNDEFINED_FUNCTION: &str = "42883";
const UNDEFINED_COLUMN: &str = "42703";
const UNDEFINED_SCHEMA: &str = "3F000";
const NOT_INSTALLED: &str = "the extension snowflake_id is not installed in the registry's database";

impl Libpq {
    /// Loads the first of these libraries that has libpq's functions, until this process exits.
    pub fn load(libraries: &[&Path]) -> Result<Self, Failure> {
        let mut first_error = None;
        for path in libraries {
            // SAFETY: the caller names libpq, or a library that is linked with it, and their initialization is made
            // for being loaded into any program.
            let loaded = unsafe { Library::new(path) };
            // SAFETY: the functions are declared as in libpq-fe.h, and the library is never unloaded.
            let found = loaded.and_then(|library| unsafe {
                let functions = Self::of(&library);
                std::mem::forget(library);
                functions
            });
            match found {
                Ok(libpq) => return Ok(libpq),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        let why = first_error.map_or_else(|| "no library is named".to_owned(), |error| error.to_string());
        Err(Failure::new(Kind::Server, why))
    }

    /// Checks that libpq can parse the connection string. Without this check, libpq would take an invalid one for the name
    /// of a database.
    pub fn check(&self, connection_string: &CStr) -> Result<(), Failure> {
        let mut message = ptr::null_mut();
        // SAFETY: both are valid; libpq allocates list and message, and frees them.
        let text = unsafe {
            let options = (self.PQconninfoParse)(connection_string.as_ptr(), &mut message);
            let text = text_of(message);
            (self.PQfreemem)(message.cast());
            if !options.is_null() {
                (self.PQconninfoFree)(options);
                return Ok(());
            }
            text
        };
        let text = about_string(&text, &connection_string.to_string_lossy());
        Err(Failure::new(Kind::Connection, text))
    }
}

/// # Safety
/// Null, or a text that ends in a zero byte.
unsafe fn text_of(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: by this function's contract.
    unsafe { CStr::from_ptr(text).to_string_lossy().into_owned() }
}

/// An open connection.
pub struct Connection<'a> {
    libpq: &'a Libpq,
    conn: *mut Conn,
}

/// Without a receiver, libpq writes notices to the server's log.
extern "C" fn ignore_notice(_argument: *mut c_void, _result: *const Res) {}

impl<'a> Connection<'a> {
    /// Connects. If a keyword is given twice, libpq uses the last value that is not empty.
    pub fn open(libpq: &'a Libpq, connection_string: &CStr) -> Result<Self, Failure> {
        let options = [
            (c"fallback_application_name", c"snowflake_id"),
            (c"dbname", connection_string),
            (c"client_encoding", c"UTF8"),
        ];
        let ended = |list: [*const c_char; 3]| list.into_iter().chain([ptr::null()]).collect::<Vec<_>>();
        let keywords = ended(options.map(|(keyword, _)| keyword.as_ptr()));
        let values = ended(options.map(|(_, value)| value.as_ptr()));
        // SAFETY: two lists of valid texts that end in null. 1: a dbname may be a connection string.
        let conn = unsafe { (libpq.PQconnectdbParams)(keywords.as_ptr(), values.as_ptr(), 1) };
        if conn.is_null() {
            return Err(Failure::new(Kind::Connection, "out of memory"));
        }
        let connection = Self { libpq, conn };
        // SAFETY: the connection was just made.
        unsafe {
            if (libpq.PQstatus)(conn) != CONNECTION_OK {
                let text = about_connection(&connection.error(), &connection_string.to_string_lossy());
                return Err(Failure::new(Kind::Connection, text));
            }
            (libpq.PQsetNoticeReceiver)(conn, ignore_notice, ptr::null_mut());
        }
        Ok(connection)
    }

    fn error(&self) -> String {
        // SAFETY: the connection is open, and its text is copied.
        unsafe { text_of((self.libpq.PQerrorMessage)(self.conn)) }
    }

    /// Runs a query; the rows have binary values.
    pub fn query(&self, query: &str, arguments: &[Value]) -> Result<Vec<Vec<Column>>, Failure> {
        let query =
            CString::new(query).map_err(|_| Failure::new(Kind::Answer, "the query has a zero byte"))?;
        Ok(self.execute(&query, arguments, PGRES_TUPLES_OK)?.rows())
    }

    /// Runs a command that has no rows.
    pub fn command(&self, command: &CStr) -> Result<(), Failure> {
        self.execute(command, &[], PGRES_COMMAND_OK).map(drop)
    }

    fn execute(&self, query: &CStr, arguments: &[Value], status: c_int) -> Result<QueryResult<'a>, Failure> {
        let types: Vec<u32> = arguments.iter().map(|value| value.of_type).collect();
        let bytes = |value: &Value| value.bytes.as_ref().map_or(ptr::null(), |bytes| bytes.as_ptr().cast());
        let values: Vec<*const c_char> = arguments.iter().map(bytes).collect();
        let length = |value: &Value| value.bytes.as_ref().map_or(0, |bytes| bytes.len() as c_int);
        let lengths: Vec<c_int> = arguments.iter().map(length).collect();
        let formats = vec![1; arguments.len()];
        // SAFETY: the connection is open, and the four lists have as many valid items as there are arguments.
        let res = unsafe {
            (self.libpq.PQexecParams)(
                self.conn,
                query.as_ptr(),
                arguments.len() as c_int,
                types.as_ptr(),
                values.as_ptr(),
                lengths.as_ptr(),
                formats.as_ptr(),
                1,
            )
        };
        if res.is_null() {
            return Err(Failure::new(Kind::Call, self.error()));
        }
        let result = QueryResult { libpq: self.libpq, res };
        // SAFETY: the result is not freed yet.
        if unsafe { (self.libpq.PQresultStatus)(res) } == status {
            return Ok(result);
        }
        // The connection broke: its text includes the server's last message.
        let Some(text) = result.error(PG_DIAG_MESSAGE_PRIMARY) else {
            return Err(Failure::new(Kind::Call, self.error()));
        };
        // PostgreSQL's own hints are about the query, which the operator did not write.
        Err(match result.error(PG_DIAG_SQLSTATE).as_deref() {
            Some(INSUFFICIENT_PRIVILEGE) => Failure::new(Kind::Connection, text),
            Some(UNDEFINED_SCHEMA) => Failure::new(Kind::Connection, NOT_INSTALLED),
            Some(UNDEFINED_FUNCTION | UNDEFINED_COLUMN) => Failure::new(Kind::Answer, text),
            _ => {
                let hint = result.error(PG_DIAG_MESSAGE_HINT).map(|hint| one_line(&hint));
                Failure { hint, ..Failure::new(Kind::Call, text) }
            }
        })
    }
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        // SAFETY: made by libpq, and freed here only.
        unsafe { (self.libpq.PQfinish)(self.conn) }
    }
}

struct QueryResult<'a> {
    libpq: &'a Libpq,
    res: *mut Res,
}

impl QueryResult<'_> {
    /// A field of the server's error; `None` without that field, or if the error is libpq's.
    fn error(&self, part: c_int) -> Option<String> {
        // SAFETY: the result is not freed yet, and its text is copied.
        let text = unsafe { text_of((self.libpq.PQresultErrorField)(self.res, part)) };
        Some(text).filter(|text| !text.is_empty())
    }

    fn rows(&self) -> Vec<Vec<Column>> {
        // SAFETY: the result is not freed yet.
        let (rows, columns) = unsafe { ((self.libpq.PQntuples)(self.res), (self.libpq.PQnfields)(self.res)) };
        (0..rows).map(|row| (0..columns).map(|column| self.column(row, column)).collect()).collect()
    }

    fn column(&self, row: c_int, column: c_int) -> Column {
        let (libpq, res) = (self.libpq, self.res);
        // SAFETY: row and column are within the result, whose value of this length is copied.
        unsafe {
            ((libpq.PQgetisnull)(res, row, column) == 0).then(|| {
                let length = (libpq.PQgetlength)(res, row, column) as usize;
                std::slice::from_raw_parts((libpq.PQgetvalue)(res, row, column).cast::<u8>(), length).to_vec()
            })
        }
    }
}

impl Drop for QueryResult<'_> {
    fn drop(&mut self) {
        // SAFETY: made by libpq, and freed here only.
        unsafe { (self.libpq.PQclear)(self.res) }
    }
}

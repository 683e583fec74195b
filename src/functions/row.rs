//! Rows of functions with OUT parameters.

use pgrx::heap_tuple::PgHeapTuple;
use pgrx::prelude::*;
use pgrx::{AllocatedByRust, PgTupleDesc};

/// The row of a function with OUT parameters; pgrx has no return type for one.
///
/// # Safety
/// `call` is the running call from SQL, nothing else keeps a pointer in its `fn_extra`, and the function's SQL declares
/// columns of the values' types.
pub unsafe fn record<const N: usize>(
    call: pg_sys::FunctionCallInfo,
    values: [Option<pg_sys::Datum>; N],
) -> PgHeapTuple<'static, AllocatedByRust> {
    // SAFETY: by this function's contract.
    unsafe {
        let row = PgTupleDesc::from_pg_unchecked(row_type(call));
        PgHeapTuple::from_datums(row, values).expect("as many values as columns")
    }
}

/// The row type that the called function's SQL declares. Looked up once per call site in a query, because the catalogs cost
/// more than all the rest of a call.
///
/// # Safety
/// `call` is a call from SQL, and nothing else keeps a pointer in its `fn_extra`.
unsafe fn row_type(call: pg_sys::FunctionCallInfo) -> pg_sys::TupleDesc {
    // SAFETY: by this function's contract. The kept pointer and the type are in `fn_mcxt`, so valid equally long.
    unsafe {
        let function = (*call).flinfo;
        if (*function).fn_extra.is_null() {
            let context = pg_sys::MemoryContextSwitchTo((*function).fn_mcxt);
            let mut row = std::ptr::null_mut();
            let kind = pg_sys::get_call_result_type(call, std::ptr::null_mut(), &mut row);
            assert_eq!(kind, pg_sys::TypeFuncClass::TYPEFUNC_COMPOSITE, "the SQL declares OUT parameters");
            (*function).fn_extra = pg_sys::BlessTupleDesc(row).cast();
            pg_sys::MemoryContextSwitchTo(context);
        }
        (*function).fn_extra.cast()
    }
}

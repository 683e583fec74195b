//! COPY in batches. COPY writes one WAL record per page, unless a column's default is volatile, because such a default
//! could read the table. PostgreSQL exempts its own `nextval()` by name. A generated ID reads nothing from the table
//! either, so a default that COPY plans calls the twin of `snowflake_nextval()`, which is declared STABLE.
//!
//! Everything else has to see a VOLATILE function, because PostgreSQL evaluates others once where a value for each row is
//! meant, and keeps the plans of some expressions for later statements and other roles. The defaults of COPY are identified
//! by the memory context in which COPY plans them. Code that runs within COPY (triggers, functions, checks of domains) has
//! contexts of its own at any depth, so no state has to survive errors. If a version of PostgreSQL names the context
//! otherwise, COPY has no batches there, and is still correct.

use super::function_info;
use pgrx::prelude::*;
use pgrx::{Internal, pg_sys};
use std::ffi::CStr;
use std::ptr;

/// The planner support function of `snowflake_nextval()` and its twin. Most plans of a call ask twice or more, so only COPY
/// pays for pgrx's wrapper. Without it, an error of PostgreSQL would end the server, so nothing here can raise one.
///
/// # Safety
/// Only PostgreSQL may call it, as a planner support function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn snowflake_nextval_support_hot(
    call: pg_sys::FunctionCallInfo,
) -> pg_sys::Datum {
    use pg_sys::NodeTag::{T_SupportRequestCost, T_SupportRequestSimplify};
    // SAFETY: the one argument of a support function is a pointer to a request, whose tag is that of its type.
    unsafe {
        let request = (*call).args.as_ptr().cast::<pg_sys::NullableDatum>().read().value;
        match (*request.cast_mut_ptr::<pg_sys::Node>()).type_ {
            T_SupportRequestSimplify if may_be_default_of_copy(request.cast_mut_ptr()) => {
                snowflake_nextval_support_wrapper(call)
            }
            T_SupportRequestCost if is_of_twin(request.cast_mut_ptr()) => {
                // Too expensive to be evaluated twice. Otherwise the planner would inline a function in SQL that uses its
                // argument twice, because the twin is not volatile.
                let cost = request.cast_mut_ptr::<pg_sys::SupportRequestCost>();
                (*cost).per_tuple = f64::INFINITY;
                request
            }
            _ => NO_ANSWER,
        }
    }
}
function_info!(pg_finfo_snowflake_nextval_support_hot);

/// A null pointer. A support function must not return an SQL null.
const NO_ANSWER: pg_sys::Datum = pg_sys::Datum::null();

/// Whether COPY plans the call in a default: `root` is null, in COPY's memory context. COPY of a query has the same
/// context, but a root. False if `10 * cpu_operator_cost` is infinite: no cost would exceed it, and the planner could
/// evaluate the twin twice.
///
/// # Safety
/// `request` is PostgreSQL's.
unsafe fn may_be_default_of_copy(request: *const pg_sys::SupportRequestSimplify) -> bool {
    // SAFETY: by this function's contract. There always is a current context, and each has a name.
    unsafe {
        (*request).root.is_null()
            && CStr::from_ptr((*pg_sys::CurrentMemoryContext).name) == c"COPY"
            && (10.0 * pg_sys::cpu_operator_cost).is_finite()
    }
}

/// Whether COPY plans the check of a domain. From PostgreSQL 19 on, it does so in the same context as a default, and keeps
/// the plan for other roles. It reads the check from `pg_constraint`, which is then open.
#[cfg(feature = "pg19")]
fn is_check_of_domain() -> bool {
    // SAFETY: called in a transaction; the reference that is taken here is given back. Not table_open(), because COPY would
    // wait for who has locked the table.
    unsafe {
        let constraints = pg_sys::RelationIdGetRelation(pg_sys::ConstraintRelationId);
        let references = (*constraints).rd_refcnt;
        pg_sys::RelationClose(constraints);
        references > 1
    }
}

/// Before PostgreSQL 19, COPY plans these checks in another context.
#[cfg(not(feature = "pg19"))]
fn is_check_of_domain() -> bool {
    false
}

/// # Safety
/// `request` is PostgreSQL's.
unsafe fn is_of_twin(request: *const pg_sys::SupportRequestCost) -> bool {
    // SAFETY: by this function's contract; the tag is that of the type. Only the twin has an argument.
    unsafe {
        let node = (*request).node;
        !node.is_null()
            && (*node).type_ == pg_sys::NodeTag::T_FuncExpr
            && !(*node.cast::<pg_sys::FuncExpr>()).args.is_null()
    }
}

#[pg_extern(sql = r#"
CREATE FUNCTION snowflake_internal.snowflake_nextval_support(internal) RETURNS internal
    VOLATILE STRICT PARALLEL SAFE LANGUAGE c AS '@MODULE_PATHNAME@', 'snowflake_nextval_support_hot';
"#)]
fn snowflake_nextval_support(request: Internal) -> Internal {
    if is_check_of_domain() {
        return Some(NO_ANSWER).into();
    }
    // SAFETY: the caller has checked the request's type.
    let twin =
        unsafe { request.get::<pg_sys::SupportRequestSimplify>().and_then(|r| call_of_twin(&*r.fcall)) };
    Some(twin.map_or(NO_ANSWER, pg_sys::Datum::from)).into()
}

/// A call of the twin that replaces this call; `None` unless the current role may execute both functions.
///
/// # Safety
/// `call` is a call of `snowflake_nextval()`, in a transaction.
unsafe fn call_of_twin(call: &pg_sys::FuncExpr) -> Option<*mut pg_sys::FuncExpr> {
    let original = call.funcid;
    // SAFETY: look-ups in the catalogs and new nodes in the current context. The types are those of PostgreSQL.
    unsafe {
        // Checked here, because the executor would check the twin alone. Without the right, the executor raises the error.
        if !may_execute(original) {
            return None;
        }
        let twin = twin_of(original).filter(|twin| may_execute(*twin))?;
        // The executor calls this hook, of security modules and auditors, only for the twin.
        let hook = pg_sys::object_access_hook;
        if hook.is_some() {
            pg_sys::RunFunctionExecuteHook(original);
        }
        // Not null, because the twin is strict. SQL has no value of this type, so it cannot call the twin.
        let (none, length) = (pg_sys::Datum::null(), size_of::<pg_sys::Datum>() as i32);
        let (no_collation, is_null, by_value) = (pg_sys::InvalidOid, false, true);
        let argument =
            pg_sys::makeConst(pg_sys::INTERNALOID, -1, no_collation, length, none, is_null, by_value);
        Some(pg_sys::makeFuncExpr(
            twin,
            call.funcresulttype,
            pg_sys::lappend(ptr::null_mut(), argument.cast()),
            call.funccollid,
            call.inputcollid,
            call.funcformat,
        ))
    }
}

/// The twin, in the schema of the support function. Only a superuser can give a function this support function.
///
/// # Safety
/// Called in a transaction, with a function that exists.
#[allow(clippy::unnecessary_cast)] // PostgreSQL 19 has another type of caches' names
unsafe fn twin_of(original: pg_sys::Oid) -> Option<pg_sys::Oid> {
    // SAFETY: by this function's contract; these are the keys of that cache, and a length of one type.
    unsafe {
        let schema = pg_sys::get_func_namespace(pg_sys::get_func_support(original));
        let twin = pg_sys::GetSysCacheOid(
            pg_sys::SysCacheIdentifier::PROCNAMEARGSNSP as i32,
            pg_sys::Anum_pg_proc_oid as pg_sys::AttrNumber,
            pg_sys::Datum::from(c"snowflake_nextval_in_copy".as_ptr()),
            pg_sys::Datum::from(pg_sys::buildoidvector(&pg_sys::INTERNALOID, 1)),
            pg_sys::Datum::from(schema),
            pg_sys::Datum::null(),
        );
        (twin != pg_sys::InvalidOid && pg_sys::get_func_support(twin) == pg_sys::get_func_support(original))
            .then_some(twin)
    }
}

/// Whether the current role has EXECUTE on a function.
///
/// # Safety
/// Called in a transaction, with a function that exists.
unsafe fn may_execute(function: pg_sys::Oid) -> bool {
    let mode = pg_sys::ACL_EXECUTE as pg_sys::AclMode;
    // SAFETY: by this function's contract.
    let result = unsafe {
        let role = pg_sys::GetUserId();
        #[cfg(feature = "pg15")]
        let result = pg_sys::pg_proc_aclcheck(function, role, mode);
        #[cfg(not(feature = "pg15"))]
        let result = pg_sys::object_aclcheck(pg_sys::ProcedureRelationId, function, role, mode);
        result
    };
    result == pg_sys::AclResult::ACLCHECK_OK
}

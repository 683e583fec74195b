//! What calls give, under every setting and plan.

mod bad_input;
mod bulk_loads;
mod concurrency;
mod horizon;
mod importing;
mod plans;
mod processes;
mod settings;
mod waits;

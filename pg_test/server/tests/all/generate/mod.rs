//! What calls give, under every setting and plan.

mod bad_arguments;
mod bad_settings;
mod bulk_loads;
mod concurrency;
mod horizon;
mod importing;
mod last_id;
mod long_texts;
mod plans;
mod processes;
mod setting_rights;
mod settings;
mod time_field;
mod waits;

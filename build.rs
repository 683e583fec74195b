//! Has the linker keep the section with the SQL that cargo-pgrx reads from the library.
//!
//! cargo-pgrx would do it with a compiler flag, which is another one than its tests need: then Cargo would build each
//! dependency twice.

fn main() {
    println!("cargo::rustc-link-arg-cdylib=-Wl,--no-gc-sections");
    println!("cargo::rerun-if-changed=build.rs");
}

//! Explores one scope of the model, with a mutant or without: `cargo run --release -p snowflake_fleet -- SCOPE
//! [MUTANT]`.

use snowflake_fleet::{MUTANTS, SCOPES, Scope, explore};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (name, mutant) = (arguments.next().unwrap_or_default(), arguments.next());
    let mutant = mutant.map(|name| {
        let named = MUTANTS.iter().find(|mutant| format!("{mutant:?}") == name);
        *named.unwrap_or_else(|| panic!("no mutant {name}: {MUTANTS:?}"))
    });
    for scope in SCOPES.iter().filter(|scope| name.is_empty() || scope.name == name) {
        let found = explore(&Scope { mutant, ..*scope });
        println!(
            "{:12} {:>9} states, depth {:>2}, {:.1?}",
            scope.name, found.states, found.depth, found.time
        );
        if let Some(breach) = found.breach {
            println!("  {breach:?} after");
            found.trace.iter().for_each(|action| println!("    {action}"));
        }
    }
}

//! Clocks that move, and starts.

mod starts;
mod steps;

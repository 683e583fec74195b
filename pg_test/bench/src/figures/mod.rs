//! What a page with figures is made of: how they count and how they look.
//!
//! * [`stats`]: medians, quantiles, and ratios of paired rounds;
//! * [`text`]: numbers as readers see them;
//! * [`page`]: tables, and the blocks of a page that a program makes;
//! * [`picture`]: pictures of one style, as SVG.

pub mod page;
pub mod picture;
pub mod stats;
pub mod text;

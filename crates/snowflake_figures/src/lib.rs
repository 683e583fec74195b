//! What the benchmark (`pg_test/bench`) and the study of scale (`studies/scale`) share, so that all pages with figures
//! look and count alike.
//!
//! * [`stats`]: medians, quantiles, and ratios of paired rounds;
//! * [`text`]: numbers as readers see them;
//! * [`page`]: tables, and the blocks of a page that a program makes;
//! * [`picture`]: pictures of one style, as SVG.

#![forbid(unsafe_code)]

pub mod page;
pub mod picture;
pub mod stats;
pub mod text;

//! Budgets: the arithmetic of their scripts, and the states that a few clients can reach.

mod cases;
mod random;
mod walks;
mod world;

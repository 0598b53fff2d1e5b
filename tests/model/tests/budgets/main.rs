//! Budgets: the arithmetic of their scripts, and every state that a few clients can reach.

mod cases;
mod random;
mod walks;
mod world;

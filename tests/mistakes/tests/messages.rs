//! Each mistake in `cases` fails to compile, with the message in the file beside it. The messages are
//! those of Rust 1.95. With another release run the test with `TRYBUILD=overwrite`, and read the diff.

#[test]
fn each_mistake_has_a_message_that_leads_to_its_remedy() {
    trybuild::TestCases::new().compile_fail("cases/*.rs");
}

//! Every mistake that a person makes with the derive macros has a file in `ui/fail`, named by what
//! is wrong, with what the compiler says to it.
//!
//! After a change of words: `TRYBUILD=overwrite cargo test -p posta-tests compile_fail`, and read
//! the difference.

#[test]
fn each_mistake_is_named_at_its_token() {
    trybuild::TestCases::new().compile_fail("ui/fail/*.rs");
}

//! Feeds [`fuzzing::targets`]' `token_file`; what it does is written there.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::targets::run("token_file", data));

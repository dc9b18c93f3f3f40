//! Feeds [`fuzzing::targets`]' `continue_token`; what it does is written there.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::targets::run("continue_token", data));

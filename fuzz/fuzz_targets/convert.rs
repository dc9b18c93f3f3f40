//! Feeds [`fuzzing::targets`]' `convert`; what it does is written there.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::targets::run("convert", data));

//! A law under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| laws::gateway::law(input));

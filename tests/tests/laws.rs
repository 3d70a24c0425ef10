//! The laws of the fuzz targets, on their kept corpus and on mutations of it: a short run of the fuzzers in every build.
//! `.ci/nightly` runs the targets themselves, in `tests/fuzz`.

#![expect(clippy::panic, clippy::indexing_slicing, reason = "test code")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use laws::{LAWS, Law, mutate::mutate};
use rand::RngExt as _;
use tests::seed::{Replay, rng, seeds};

/// Mutations of each law's corpus.
const MUTATIONS: usize = 1500;

/// All that the corpus may weigh: it is kept to be read again by every build, not to grow.
const CORPUS_BYTES: usize = 200_000;

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz")
}

/// The kept inputs of a target, in the order of their names.
fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = fs::read_dir(fuzz().join("corpus").join(target));
    let folder = folder.unwrap_or_else(|error| panic!("{target} has no corpus: {error}"));
    let mut files: Vec<_> = folder.map(|file| file.expect("a file").path()).collect();
    files.sort();
    let read = |path: PathBuf| (path.display().to_string(), fs::read(path).expect("it is read"));
    files.into_iter().map(read).collect()
}

fn replay(target: &str, law: Law) {
    let corpus = corpus(target);
    assert!(!corpus.is_empty(), "{target} has no corpus");
    for (name, input) in &corpus {
        let held = std::panic::catch_unwind(|| law(input));
        assert!(held.is_ok(), "{name}");
    }
    for seed in seeds(&[1]) {
        let replay = Replay::of("laws", seed);
        let mut random = rng(seed);
        for _ in 0..MUTATIONS {
            let (name, input) = &corpus[random.random_range(0..corpus.len())];
            let (_, other) = &corpus[random.random_range(0..corpus.len())];
            let input = mutate(input, other, &mut random);
            let held = std::panic::catch_unwind(|| law(&input));
            assert!(held.is_ok(), "{name}, mutated: {:?}", String::from_utf8_lossy(&input));
        }
        replay.well();
    }
}

fn law(target: &str) -> Law {
    LAWS.iter().find(|(name, _)| *name == target).expect("a law").1
}

#[test]
fn events_of_a_batch_are_the_bytes_that_were_sent() {
    replay("batches", law("batches"));
}

#[test]
fn a_handshake_gives_a_stranger_nothing_but_its_fixed_answer() {
    replay("handshakes", law("handshakes"));
}

#[test]
fn events_of_the_gateway_are_read_as_they_stand_and_always_answered() {
    replay("gateway", law("gateway"));
}

#[test]
fn values_of_a_body_are_what_serde_json_finds() {
    replay("json", law("json"));
}

#[test]
fn no_edit_of_a_signed_request_passes_for_something_else() {
    replay("requests", law("requests"));
}

#[test]
fn a_text_is_a_sound_scheme_or_none() {
    replay("schemes", law("schemes"));
}

#[test]
fn no_secret_is_repeated_and_every_good_one_is_taken_again() {
    replay("secrets", law("secrets"));
}

#[test]
fn every_law_has_a_target_and_a_corpus_of_its_own_and_the_corpus_is_small() {
    let laws: Vec<_> = LAWS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let names = |folder: &str| {
        let files = fs::read_dir(fuzz().join(folder)).expect("a folder");
        let mut names: Vec<_> = files
            .map(|file| file.expect("a file").path())
            .map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names("targets"), laws);
    assert_eq!(names("corpus"), laws);
    let inputs = laws.iter().flat_map(|target| corpus(target));
    let bytes: usize = inputs.map(|(_, input)| input.len()).sum();
    assert!(bytes < CORPUS_BYTES, "the corpus has {bytes} bytes; `.ci/nightly` minimises it");
}

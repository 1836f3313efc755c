//! Elementary functions are as accurate as `docs/accuracy.md` says, and Philox gives the published streams.

use kiln_ir::philox::{philox4x32, philox4x64};
use kiln_suite::accuracy::table::Tables;
use kiln_suite::accuracy::{measure, page, record};

#[test]
fn errors_stay_within_the_record() {
    let known = record::read().unwrap();
    let problems = record::problems(&known, &measure());
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn the_page_matches_the_record() {
    let text = std::fs::read_to_string(page::path()).unwrap();
    assert!(text == page::print(&record::read().unwrap()), "run `cargo xtask accuracy`");
}

/// NumPy draws from block 1 on and takes the four words in order.
#[test]
fn philox_streams_match_numpy() {
    let tables = Tables::read();
    for set in 1..=2 {
        let key = tables.words(&format!("philox/{set}/key")).try_into().unwrap();
        let words = tables.words(&format!("philox/{set}/words"));
        assert_eq!(words.len(), 1000);
        let drawn: Vec<u64> = (1..=250).flat_map(|block| philox4x64([block, 0, 0, 0], key)).collect();
        assert_eq!(drawn, words);
    }
}

/// The known answers that are published with Random123 (`kat_vectors`).
#[test]
fn philox_matches_the_random123_known_answers() {
    let pi = [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344, 0xa409_3822_299f_31d0, 0x082e_fa98_ec4e_6c89];
    let answers: [([u64; 4], [u64; 2], [u64; 4]); 3] = [
        (
            [0; 4],
            [0; 2],
            [0x1655_4d9e_ca36_314c, 0xdb20_fe9d_672d_0fdc, 0xd7e7_72ce_e186_176b, 0x7e68_b68a_ec7b_a23b],
        ),
        (
            [u64::MAX; 4],
            [u64::MAX; 2],
            [0x87b0_92c3_013f_e90b, 0x438c_3c67_be8d_0224, 0x9cc7_d7c6_9cd7_77b6, 0xa09c_aebf_594f_0ba0],
        ),
        (
            pi,
            [0x4528_21e6_38d0_1377, 0xbe54_66cf_34e9_0c6c],
            [0xa528_f454_03e6_1d95, 0x38c7_2dbd_566e_9788, 0xa5a1_610e_72fd_18b5, 0x57bd_43b5_e52b_7fe6],
        ),
    ];
    for (counter, key, expected) in answers {
        assert_eq!(philox4x64(counter, key), expected);
    }
    assert_eq!(philox4x32([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
}

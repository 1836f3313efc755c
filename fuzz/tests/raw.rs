//! Raw ops with huge and empty sizes: a short campaign. `cargo xtask fuzz --raw` runs long ones.

use kiln_fuzz::raw::{Campaign, program};

#[test]
fn programs_follow_from_seed_and_number() {
    assert_eq!(program(1, 7).to_string(), program(1, 7).to_string());
    assert!((0..1000).any(|number| program(1, number).to_string().contains("1099511627776")));
}

#[test]
fn options_of_a_campaign_are_read() {
    let words = ["--seed", "3", "--programs", "9", "--engine", "reference"].map(str::to_owned);
    let campaign = Campaign::parse(&mut words.into_iter()).unwrap();
    assert_eq!((campaign.seed, campaign.programs, campaign.engine.as_str()), (3, Some(9), "reference"));
    assert!(Campaign::parse(&mut ["--seed".to_owned()].into_iter()).is_err());
    assert!(Campaign::parse(&mut ["--sede", "3"].map(str::to_owned).into_iter()).is_err());
}

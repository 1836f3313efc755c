//! Random programs on a router whose operands are spread over both members.

use kiln_fuzz::campaign::{Options, run};
use kiln_fuzz::check::Subjects;

#[test]
fn programs_agree_on_a_router() {
    let options = Options { programs: 150, seed: 25, ..Options::default() };
    let report = run(&options, Subjects::router);
    assert!(report.is_good(), "{report}");
}

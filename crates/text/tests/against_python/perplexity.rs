//! Perplexities equal to those of the loop in Hugging Face's guide.

use crate::against_python::attention_model::{Caching, Expected, model};
use kiln_text::{PerplexityOptions, TextError, perplexity};

#[test]
fn perplexity_is_that_of_strided_windows() {
    for caching in [Caching::Static, Caching::Growing] {
        let (model, fixture) = model(caching);
        for Expected { window, stride, count, perplexity: expected } in fixture.perplexities {
            let options = PerplexityOptions::new(window).with_stride(stride);
            let own = perplexity(&model, &fixture.text, &options).unwrap();
            assert_eq!(own.losses.len(), count, "{options:?}");
            assert!((own.value() / expected - 1.0).abs() < 1e-5, "{options:?}: {} {expected}", own.value());
            assert!((own.mean_loss().exp() - own.value()).abs() < 1e-9);
            assert!(own.standard_error() > 0.0 && own.standard_error() < own.value());
        }
    }
}

#[test]
fn invalid_windows_are_errors() {
    let (model, fixture) = model(Caching::Static);
    let run = |ids: &[u32], window: usize, stride: usize| {
        perplexity(&model, ids, &PerplexityOptions::new(window).with_stride(stride)).unwrap_err()
    };
    let text = &fixture.text;
    for error in [run(&text[..1], 8, 8), run(text, 1, 1), run(text, 25, 8), run(text, 8, 0), run(text, 8, 9)]
    {
        assert!(matches!(error, TextError::InvalidArgument { .. }), "{error}");
    }
    assert!(matches!(run(&[1, 99], 8, 8), TextError::UnknownId { id: 99, size: 13 }));
}

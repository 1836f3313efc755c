//! `Op::Recover`: values without their deferred bounds-check flags, and the validity flag.

use crate::host::driver::Host;
use kiln_gpu::Gpu;
use kiln_ir::{Engine, IndexUser, Op, Operands, TensorData, Var, block_on};

fn write<'e>(engine: &'e dyn Engine, data: TensorData) -> Var<'e> {
    Var::new(engine, engine.write(data))
}

fn list<'e>(engine: &'e dyn Engine, indices: &[i32]) -> Var<'e> {
    write(engine, TensorData::new(indices.to_vec(), [indices.len()]).unwrap())
}

fn recover<'e>(engine: &'e dyn Engine, kept: &[&Var<'e>], watched: &[&Var<'e>]) -> Vec<Var<'e>> {
    let operands: Operands = kept.iter().chain(watched).map(|var| var.operand().clone()).collect();
    Var::emit(engine, &Op::Recover { watched: watched.len() }, operands)
}

fn numbers(engine: &dyn Engine, var: &Var<'_>) -> Vec<f32> {
    block_on(engine.read(var.clone().into_value())).unwrap().to_vec()
}

#[test]
fn an_index_out_of_range_becomes_a_flag_and_old_values_are_selected() {
    let Some(driver) = Host::open() else { return };
    let host = Gpu::new(driver, kiln_ir::MemoryConfig::new());
    let engine: &dyn Engine = &host;
    let x = write(engine, TensorData::new(vec![1.0f32, 2.0, 3.0], [3]).unwrap());
    let old = x.clone() * 10.0;
    // The second time, more flags are set than one page has.
    for count in [1, 600] {
        let good = (0..count).fold(x.clone(), |x, _| x.take(0, &list(engine, &[2, 0, 1])));
        let bad = (0..count)
            .fold(x.clone(), |x, i| x.take(0, &list(engine, &[1, if i == count / 2 { 3 } else { 0 }, 2])));
        for (kept, watched, is_ok) in [
            (vec![&good, &x], vec![], true),
            (vec![&good, &bad], vec![], false),
            (vec![&good], vec![&bad], false),
            (vec![&x], vec![&good], true),
        ] {
            let results = recover(engine, &kept, &watched);
            let [values @ .., ok, cause] = &*results else { panic!("two flags") };
            let selected = ok.select(&(&values[0] + 1.0), &old);
            let expected: Vec<f32> = match is_ok {
                true => numbers(engine, kept[0]).iter().map(|x| x + 1.0).collect(),
                false => vec![10.0, 20.0, 30.0],
            };
            assert_eq!(numbers(engine, &selected), expected);
            assert_eq!(numbers(engine, ok), [f32::from(u8::from(is_ok))]);
            assert!(values.iter().all(|value| block_on(engine.read(value.clone().into_value())).is_ok()));
            assert_eq!(block_on(engine.read(cause.clone().into_value())).is_ok(), is_ok);
        }
    }
}

#[test]
fn outcome_reports_values_known_without_synchronization() {
    let Some(driver) = Host::open() else { return };
    let host = Gpu::new(driver, kiln_ir::MemoryConfig::new());
    let engine: &dyn Engine = &host;
    let x = write(engine, TensorData::new(vec![1.0f32, 2.0, 3.0], [3]).unwrap());
    let taken = x.take(0, &list(engine, &[2, 0]));
    let cause = recover(engine, &[&taken], &[]).pop().unwrap().into_value();
    assert_eq!(engine.outcome(&(&x + 1.0).into_value()), Some(Ok(())));
    assert_eq!(engine.outcome(&cause), None);
    numbers(engine, &taken);
    assert_eq!(engine.outcome(&cause), Some(Ok(())));
}

#[test]
fn check_index_errors_name_the_user_op() {
    let Some(driver) = Host::open() else { return };
    let host = Gpu::new(driver, kiln_ir::MemoryConfig::new());
    let engine: &dyn Engine = &host;
    let x = write(engine, TensorData::new(vec![1.0f32, 2.0, 3.0], [3]).unwrap());
    for &user in IndexUser::ALL {
        let checked = |indices: &[i32]| {
            let index = list(engine, indices).apply(Op::CheckIndex { length: 3, user }, &[]);
            block_on(engine.read(x.take(0, &index).into_value()))
        };
        assert_eq!(checked(&[2, 0]).unwrap().to_vec::<f32>(), [3.0, 1.0]);
        for wrong in [3, -1] {
            let error = checked(&[0, wrong]).unwrap_err().to_string();
            assert!(error.starts_with(&format!("[{}] ", user.name())), "{error}");
            let problem = match user {
                IndexUser::Multinomial => "the weights of row [1]",
                IndexUser::CrossEntropy | IndexUser::Nll | IndexUser::Embedding | IndexUser::OneHot => {
                    "out of range for 3 "
                }
            };
            assert!(error.contains(problem), "{error}");
        }
    }
}

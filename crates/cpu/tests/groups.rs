//! Collectives of several threads.

use kiln_cpu::Cpu;
use kiln_ir::*;

type Kind = CollectiveKind;

/// Runs a function for each member of a group, each in a thread of its own.
fn together<R: Send>(size: usize, run: impl Fn(GroupMember, &Expand) -> R + Sync) -> Vec<R> {
    let group = ThreadGroup::new(size);
    let members = group.join().unwrap();
    let run = &run;
    std::thread::scope(|scope| {
        let threads: Vec<_> = members
            .into_iter()
            .map(|member| scope.spawn(move || run(member, &Expand::new(Cpu::with_threads(1)))))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn call(
    engine: &Expand,
    member: &GroupMember,
    kind: Kind,
    operand: Option<TensorData>,
) -> Result<TensorData> {
    let inputs: Operands = operand.into_iter().map(|data| Operand::Value(engine.write(data))).collect();
    let op = Op::Collective(member.collective(kind));
    let types = infer(&op, &OperandType::list(&inputs))?;
    block_on(engine.read(engine.execute(&op, inputs, &types).remove(0)))
}

/// The operand of a member: 2 rows for each member, of 3 numbers.
fn operand(rank: usize, size: usize) -> TensorData {
    let numbers: Vec<f32> = (0..size * 6).map(|i| ((i * 7 + rank * 5) % 11) as f32 - 4.5).collect();
    TensorData::new(numbers, [2 * size, 3]).unwrap()
}

fn plainly(reduction: Reduction, size: usize) -> Vec<f32> {
    let all: Vec<Vec<f32>> = (0..size).map(|rank| operand(rank, size).to_vec()).collect();
    (0..size * 6)
        .map(|i| {
            let numbers = all.iter().map(|numbers| numbers[i]);
            numbers
                .reduce(|a, b| match reduction {
                    Reduction::Sum => a + b,
                    Reduction::Prod => a * b,
                    Reduction::Min => a.min(b),
                    Reduction::Max => a.max(b),
                })
                .unwrap()
        })
        .collect()
}

#[test]
fn reductions_equal_a_plain_computation() {
    for size in [2, 4] {
        for &reduction in Reduction::ALL {
            let expected = plainly(reduction, size);
            let results = together(size, |member, engine| {
                let x = || Some(operand(member.rank(), size));
                let all = call(engine, &member, Kind::AllReduce(reduction), x()).unwrap();
                let part = call(engine, &member, Kind::ReduceScatter { reduction, axis: 0 }, x()).unwrap();
                assert_eq!(part.shape()[..], [2, 3]);
                (all.to_vec::<f32>(), part.to_vec::<f32>())
            });
            for (rank, (all, part)) in results.into_iter().enumerate() {
                assert_eq!(all, expected);
                assert_eq!(part, expected[rank * 6..(rank + 1) * 6]);
            }
        }
    }
}

#[test]
fn gathers_broadcasts_and_messages_equal_a_plain_computation() {
    for size in [2, 4] {
        let results = together(size, |member, engine| {
            let rank = member.rank();
            let x = || Some(operand(rank, size));
            let rows = call(engine, &member, Kind::AllGather { axis: 0 }, x()).unwrap();
            let columns = call(engine, &member, Kind::AllGather { axis: 1 }, x()).unwrap();
            let root = call(engine, &member, Kind::Broadcast { root: 1 }, x()).unwrap();
            let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
            let ty = operand(0, size).ty();
            // Two messages with different tags, received in the other order.
            call(engine, &member, Kind::Send { to: next, tag: 1 }, x()).unwrap();
            call(engine, &member, Kind::Send { to: next, tag: 2 }, Some(TensorData::from([rank as i32])))
                .unwrap();
            let scalar = TensorType::new([1], DType::I32);
            let number =
                call(engine, &member, Kind::Recv { from: previous, tag: 2, ty: scalar }, None).unwrap();
            assert_eq!(number.to_vec::<i32>(), [previous as i32]);
            let received = call(engine, &member, Kind::Recv { from: previous, tag: 1, ty }, None).unwrap();
            assert_eq!(received, operand(previous, size));
            (rows, columns, root)
        });
        let all: Vec<TensorData> = (0..size).map(|rank| operand(rank, size)).collect();
        let rows: Vec<f32> = all.iter().flat_map(TensorData::to_vec::<f32>).collect();
        for (by_rows, by_columns, root) in results {
            assert_eq!(by_rows.to_vec::<f32>(), rows);
            assert_eq!(by_columns.shape()[..], [2 * size, 3 * size]);
            let first_row: Vec<f32> = all.iter().flat_map(|x| x.to_vec::<f32>()[..3].to_vec()).collect();
            assert_eq!(by_columns.to_vec::<f32>()[..3 * size], first_row);
            assert_eq!(root, all[1]);
        }
    }
}

#[test]
fn results_are_bit_identical_whatever_the_timing() {
    let mut first = None;
    for repetition in 0..200 {
        let results = together(4, |member, engine| {
            if (repetition + member.rank()).is_multiple_of(3) {
                std::thread::yield_now();
            }
            let numbers: Vec<f32> = (0..50).map(|i| 0.1 / (1.0 + i as f32 + member.rank() as f32)).collect();
            let x = TensorData::new(numbers, [50]).unwrap();
            call(engine, &member, Kind::AllReduce(Reduction::Sum), Some(x)).unwrap()
        });
        let expected = first.get_or_insert_with(|| results[0].clone());
        assert!(results.iter().all(|result| result == expected));
    }
}

#[test]
fn sixteen_bit_floats_are_summed_in_32_bits() {
    let results = together(4, |member, engine| {
        let x = if member.rank() == 0 { 256.0f32 } else { 0.5 };
        let x = TensorData::from([x]).convert(DType::BF16);
        call(engine, &member, Kind::AllReduce(Reduction::Sum), Some(x)).unwrap().to_vec::<f32>()
    });
    // Each sum of 256 and 0.5 alone would round to 256.
    assert_eq!(results, vec![vec![258.0]; 4]);
}

#[test]
fn members_that_call_different_ops_get_an_error_that_names_both() {
    let error = |kinds: [Kind; 2], lengths: [usize; 2]| {
        let errors = together(2, |member, engine| {
            let rank = member.rank();
            let x = TensorData::zeros(TensorType::new([lengths[rank]], DType::F32));
            call(engine, &member, kinds[rank], Some(x)).unwrap_err().to_string()
        });
        assert_eq!(errors[0], errors[1]);
        errors[0].clone()
    };
    let sum = Kind::AllReduce(Reduction::Sum);
    let ops = error([sum, Kind::AllGather { axis: 0 }], [2, 2]);
    assert!(ops.contains("member 0 calls `all_reduce` (sum) of f32[2]"), "{ops}");
    assert!(ops.contains("member 1 calls `all_gather` (axis 0) of f32[2]"), "{ops}");
    let shapes = error([sum, sum], [2, 3]);
    assert!(shapes.contains("of f32[2], but member 1") && shapes.contains("of f32[3]"), "{shapes}");
}

#[test]
fn a_member_that_leaves_ends_the_calls_of_the_others() {
    let sum = Kind::AllReduce(Reduction::Sum);
    let one = || Some(TensorData::from([1.0f32]));
    let errors = together(3, |member, engine| {
        if member.rank() == 1 {
            return None;
        }
        let waiting = call(engine, &member, sum, one()).unwrap_err();
        let later = call(engine, &member, sum, one()).unwrap_err();
        Some([waiting.to_string(), later.to_string()])
    });
    for error in errors.into_iter().flatten().flatten() {
        assert!(error.contains("[group ") && error.contains("member 1 has left"), "{error}");
    }
}

#[test]
fn a_member_that_fails_or_panics_ends_the_calls_of_the_others() {
    for panics in [false, true] {
        let errors = together(2, |member, engine| {
            if member.rank() == 0 {
                let ty = TensorType::new([1], DType::F32);
                let error = call(engine, &member, Kind::Recv { from: 1, tag: 0, ty }, None).unwrap_err();
                return error.to_string();
            }
            if !panics {
                member.fail("out of memory");
            } else {
                let caught = std::panic::catch_unwind(move || {
                    let _member = member;
                    panic!("a bug");
                });
                assert!(caught.is_err());
            }
            String::new()
        });
        let expected = if panics { "member 1 panicked" } else { "member 1 failed: out of memory" };
        assert!(errors[0].contains(expected), "{}", errors[0]);
    }
}

#[test]
fn an_operand_in_error_reaches_all_members() {
    let group = ThreadGroup::new(2);
    let members = group.join().unwrap();
    let errors: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = members
            .into_iter()
            .map(|member| {
                scope.spawn(move || {
                    let engine = Expand::new(Cpu::with_threads(1));
                    let ty = TensorType::new([1], DType::F32);
                    let x = match member.rank() {
                        0 => engine.write(TensorData::from([1.0f32])),
                        _ => Value::poisoned(ty, Error::value("take", "index 7 is out of range")),
                    };
                    let op = Op::Collective(member.collective(Kind::AllReduce(Reduction::Sum)));
                    let y = engine.execute(&op, [x.into()].into_iter().collect(), &[ty]).remove(0);
                    block_on(engine.read(y)).unwrap_err().to_string()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(errors[0].contains("the operand of member 1 is in error: [take] index 7"), "{}", errors[0]);
    assert_eq!(errors[1], "[take] index 7 is out of range");
    assert_eq!(group.first_failure(), Some(1));
}

#[test]
fn members_that_wait_for_each_other_get_an_error() {
    let errors = together(2, |member, engine| {
        let ty = TensorType::new([1], DType::F32);
        let (kind, operand) = match member.rank() {
            0 => (Kind::AllReduce(Reduction::Sum), Some(TensorData::from([1.0f32]))),
            _ => (Kind::Recv { from: 0, tag: 3, ty }, None),
        };
        call(engine, &member, kind, operand).unwrap_err().to_string()
    });
    for error in errors {
        assert!(error.contains("all members wait for each other"), "{error}");
        assert!(error.contains("member 0 in `all_reduce`"), "{error}");
        assert!(error.contains("member 1 in `recv` from member 0 with tag 3"), "{error}");
    }
}

#[test]
fn a_group_is_joined_again_and_unregistered_when_dropped() {
    let group = ThreadGroup::new(2);
    let mut members = group.join().unwrap();
    assert!(group.join().unwrap_err().to_string().contains("member 0 has not left"));
    members.remove(0).fail("early");
    drop(members);
    let members = group.join().unwrap();
    assert_eq!((members[1].rank(), members[1].group(), group.first_failure()), (1, group.id(), None));
    let collective = members[0].collective(Kind::Broadcast { root: 0 });
    drop((members, group));
    let engine = Expand::new(Cpu::with_threads(1));
    let ty = TensorType::new([1], DType::F32);
    let x = engine.write(TensorData::from([1.0f32]));
    let y = engine.execute(&Op::Collective(collective), [x.into()].into_iter().collect(), &[ty]).remove(0);
    let error = block_on(engine.read(y)).unwrap_err().to_string();
    assert!(
        error.contains("does not connect a group of 2 members") && error.contains("ThreadGroup"),
        "{error}"
    );
}

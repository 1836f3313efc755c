//! The kernels of attention's gradients.
//!
//! With the weights `p = exp(s - lse)` and `d = Σ grad · y` of each query: `dv = pᵀ grad`, `ds = p (grad vᵀ - d)`,
//! `dq = scale ds k`, `dk = scale dsᵀ q`. The weights are computed again. One kernel computes `dq`, by tiles of
//! queries, and one `dk` and `dv`, by tiles of keys.

use super::super::contraction::zero;
use super::problem::{Matrix, Problem, Row, Side};
use super::{Form, SIDE, THREADS, Tile};
use kiln_ir::{Binary, DType, Scalar, Unary};
use kiln_kernel::block::{BlockKernel, Buffer, Builder, Expression, Variable, constant, index, select};

/// The kernel that computes two numbers for each query, which the other kernels read: the log-sum-exp, or infinity
/// for a query without visible keys, and after those of all queries, `d`. Its parameters are `grad`, `y`, the
/// contiguous log-sum-exp and the contiguous result; query heads, key heads, queries, keys, the causal offset and the
/// scale; four strides of each of `grad` and `y`; the number of all queries. Blocks: one for each 16 stacked queries.
pub(crate) fn row_numbers(dtype: DType, dim_v: usize) -> BlockKernel {
    let form = Form { dtype, mask: None, dim: dim_v, dim_v, tile: ROW_TILE };
    let (k, wide) = (Builder::new("attention_rows", THREADS as u32), form.wide());
    let [grad, y] = ["grad", "y"].map(|name| k.input(name, dtype));
    let (log_sum_exp, numbers) = (k.input("log_sum_exp", wide), k.output("numbers", wide));
    let problem = Problem::new(&k, form, Side::Queries);
    let matrices = [grad, y].map(|x| problem.matrix(&k, x, Side::Queries));
    let all = k.length("all");
    let queries = problem.stacked_rows(&k);
    let query = &queries[0];
    let [grad, y] = matrices.each_ref().map(|matrix| matrix.start(&k, query));
    let sum = k.var(&zero(wide));
    k.when(&query.is_inside, || {
        k.for_range(&problem.lane, &index(dim_v), &index(SIDE), |column| {
            let [of_grad, of_y] = &matrices;
            let product = of_grad.at(&grad, &column, wide) * &of_y.at(&y, &column, wide);
            k.update(&sum, Binary::Add, &product);
        });
    });
    let sums = problem.combined(&k, &[sum.get()], Binary::Add);
    k.when(&problem.is_first_lane(&query.is_inside), || {
        let place = k.bind(&(&problem.head * &problem.stacked + &problem.stacked_place(0)));
        let log = k.bind(&log_sum_exp.at(&place));
        let infinity = |number: f64| constant(Scalar::Float(number), wide);
        let is_masked = log.eq(&infinity(f64::NEG_INFINITY));
        k.store(&numbers, &place, &select(&is_masked, &infinity(f64::INFINITY), &log));
        k.store(&numbers, &(&all + &place), &sums[0]);
    });
    k.finish()
}

/// The tile of [`row_numbers`].
pub(crate) const ROW_TILE: Tile = Tile { tall: 1, wide: 1 };

/// The kernel of the queries' gradient. Its parameters are `grad`, `q`, `k`, `v`, the mask if there is one, the
/// numbers of [`row_numbers`] and the result; query heads, key heads, queries, keys, the causal offset and the scale;
/// four strides of each of `grad`, `q`, `k`, `v`, the result and the mask, if there is one; the number of all
/// queries. Blocks: one for each tile of stacked queries.
pub(crate) fn query_gradients(form: Form) -> BlockKernel {
    let k = Builder::new("attention_queries", THREADS as u32);
    let (operands, mask, numbers) = inputs(&k, form);
    let dq = k.output("dq", form.dtype);
    let gradient = Gradient::new(&k, Problem::new(&k, form, Side::Queries), operands, numbers);
    let (problem, [grad, q, keys, v]) = (&gradient.problem, &gradient.operands);
    let dq = problem.matrix(&k, dq, Side::Queries);
    let mask = mask.map(|x| problem.matrix(&k, x, Side::Queries));
    let all = k.length("all");
    let queries = problem.stacked_rows(&k);
    let states: Vec<State> = (0..form.tile.tall)
        .map(|row| {
            let place = k.bind(&(&problem.head * &problem.stacked + &problem.stacked_place(row)));
            gradient.state(&k, &queries[row], mask.as_ref(), [&place, &all])
        })
        .collect();
    let (q, grad) = (q.rows(&k, &queries, form.dim), grad.rows(&k, &queries, form.dim_v));
    let sums = problem.sums(&k, form.dim);
    problem.for_seen_keys(&k, |start| {
        let [loaded, own] = problem.keys_of_tile(&k, &start);
        let keys = keys.rows(&k, &loaded, form.dim);
        let products = problem.products(&k, &q, &keys);
        let slopes = problem.products(&k, &grad, &v.rows(&k, &loaded, form.dim_v));
        for (number, pair) in problem.pairs().enumerate() {
            let rows = [&queries[pair[0]], &own[pair[1]]];
            let found = [&products[number], &slopes[number]];
            let [_, slope] = gradient.weight(&k, mask.as_ref(), rows, &states[pair[0]], found);
            problem.put_weight(&k, pair, &slope.get());
        }
        problem.add_weighted(&k, &keys, &sums);
    });
    problem.store(&k, &dq.rows(&k, &queries, form.dim), &sums, |_, sum| sum);
    k.finish()
}

/// The kernel of the gradients of keys and values. Its parameters are `grad`, `q`, `k`, `v`, the mask if there is
/// one, the numbers of [`row_numbers`] and the results `dk` and `dv`; query heads, key heads, queries, keys, the
/// causal offset and the scale; four strides of each of `grad`, `q`, `k`, `v`, `dk`, `dv` and the mask, if there is
/// one; the number of all queries. Blocks: one for each tile of keys.
pub(crate) fn key_gradients(form: Form) -> BlockKernel {
    let k = Builder::new("attention_keys", THREADS as u32);
    let (operands, mask, numbers) = inputs(&k, form);
    let results = ["dk", "dv"].map(|name| k.output(name, form.dtype));
    let gradient = Gradient::new(&k, Problem::new(&k, form, Side::Keys), operands, numbers);
    let (problem, [grad, q, keys, v]) = (&gradient.problem, &gradient.operands);
    let [dk, dv] = results.map(|x| problem.matrix(&k, x, Side::Keys));
    let mask = mask.map(|x| problem.matrix(&k, x, Side::Queries));
    let all = k.length("all");
    let own = problem.rows(&k, &index(0), [&problem.first, &problem.line, &problem.keys], form.tile.tall);
    let (keys, v) = (keys.rows(&k, &own, form.dim), v.rows(&k, &own, form.dim_v));
    let [of_keys, of_values] = [form.dim, form.dim_v].map(|columns| problem.sums(&k, columns));
    // Earlier queries see no key of the block.
    let from = k.bind(&(&problem.first - &problem.offset).max(&index(0)));
    k.for_each(&problem.group, |head| {
        k.for_range(&from, &problem.queries, &index(form.tile.others()), |start| {
            let [loaded, others] = [&problem.line, &problem.lane]
                .map(|lane| problem.rows(&k, &head, [&start, lane, &problem.queries], form.tile.wide));
            let of_head = (&problem.head * &problem.group + &head) * &problem.queries;
            let of_head = k.bind(&of_head);
            let states: Vec<State> = others
                .iter()
                .map(|query| {
                    let place = k.bind(&(&of_head + &query.number));
                    gradient.state(&k, query, mask.as_ref(), [&place, &all])
                })
                .collect();
            let (q, grad) = (q.rows(&k, &loaded, form.dim), grad.rows(&k, &loaded, form.dim_v));
            let products = problem.products(&k, &keys, &q);
            let slopes = problem.products(&k, &v, &grad);
            let weights: Vec<[Variable; 2]> = problem
                .pairs()
                .enumerate()
                .map(|(number, [key, query])| {
                    let (rows, found) = ([&others[query], &own[key]], [&products[number], &slopes[number]]);
                    gradient.weight(&k, mask.as_ref(), rows, &states[query], found)
                })
                .collect();
            for (which, (rows, sums)) in [(&grad, &of_values), (&q, &of_keys)].into_iter().enumerate() {
                for (pair, weights) in problem.pairs().zip(&weights) {
                    problem.put_weight(&k, pair, &weights[which].get());
                }
                problem.add_weighted(&k, rows, sums);
            }
        });
    });
    problem.store(&k, &dk.rows(&k, &own, form.dim), &of_keys, |_, sum| sum);
    problem.store(&k, &dv.rows(&k, &own, form.dim_v), &of_values, |_, sum| sum);
    k.finish()
}

/// The tensors that both kernels of gradients read: `grad`, `q`, `k` and `v`, the mask, and the numbers of queries.
fn inputs(k: &Builder, form: Form) -> ([Buffer; 4], Option<Buffer>, Buffer) {
    let operands = ["grad", "q", "k", "v"].map(|name| k.input(name, form.dtype));
    let mask = form.mask.map(|dtype| k.input("mask", dtype));
    (operands, mask, k.input("numbers", form.wide()))
}

/// A gradient with its operands `grad`, `q`, `k` and `v`.
struct Gradient {
    problem: Problem,
    operands: [Matrix; 4],
    /// The result of [`row_numbers`].
    numbers: Buffer,
}

/// The numbers of a query.
struct State {
    /// The log-sum-exp, or infinity for a query without visible keys.
    log_sum_exp: Expression,
    /// `d`.
    delta: Expression,
    /// The first element of its mask.
    mask: Option<Expression>,
}

impl Gradient {
    fn new(k: &Builder, problem: Problem, [grad, q, keys, v]: [Buffer; 4], numbers: Buffer) -> Gradient {
        let [grad, q] = [grad, q].map(|x| problem.matrix(k, x, Side::Queries));
        let [keys, v] = [keys, v].map(|x| problem.matrix(k, x, Side::Keys));
        Gradient { problem, operands: [grad, q, keys, v], numbers }
    }

    /// The numbers of the query at a place among all queries. They are not used if the query does not exist.
    fn state(
        &self,
        k: &Builder,
        query: &Row,
        mask: Option<&Matrix>,
        [place, all]: [&Expression; 2],
    ) -> State {
        let zero = zero(self.problem.form.wide());
        let number = |at: &Expression| k.bind(&select(&query.is_inside, &self.numbers.at(at), &zero));
        State {
            log_sum_exp: number(place),
            delta: number(&(all + place)),
            mask: mask.map(|mask| mask.start(k, query)),
        }
    }

    /// The weight of a pair of query and key, and its `scale · ds`; 0 if the query does not see the key. The products
    /// are those of query and key, and of `grad` and value.
    fn weight(
        &self,
        k: &Builder,
        mask: Option<&Matrix>,
        rows: [&Row; 2],
        state: &State,
        [product, slope]: [&Variable; 2],
    ) -> [Variable; 2] {
        let problem = &self.problem;
        let results = [(); 2].map(|()| k.var(&zero(problem.form.wide())));
        let [weight, scaled] = &results;
        problem.when_seen(k, mask.zip(state.mask.as_ref()), rows, product, |score| {
            k.set(weight, &(score - &state.log_sum_exp).unary(Unary::Exp));
            k.set(scaled, &(weight.get() * &(slope.get() - &state.delta) * &problem.scale));
        });
        results
    }
}

//! Einsum.

use super::{Method, normal, one};
use kiln_tensor::AnyTensor;

pub(super) fn rows() -> Vec<Method> {
    vec![
        Method::new("einsum", |x| one(AnyTensor::einsum("bij,bjk->bik", x.to_vec())))
            .on(&[normal(&[2, 3, 4]), normal(&[2, 4, 2])])
            .on(&[normal(&[1, 3, 4]), normal(&[2, 4, 2])])
            .on(&[normal(&[2, 0, 4]), normal(&[2, 4, 2])]),
        Method::new("einsum", |x| one(AnyTensor::einsum("ij,jk,kl,l->i", x.to_vec())))
            .variant("chain")
            .on(&[normal(&[2, 3]), normal(&[3, 2]), normal(&[2, 3]), normal(&[3])]),
        Method::new("einsum", |x| one(AnyTensor::einsum("...ii->i...", x.to_vec())))
            .variant("diagonal")
            .on(&[normal(&[3, 3])])
            .on(&[normal(&[2, 3, 3])]),
        Method::new("einsum", |x| one(AnyTensor::einsum("ab,ac,d->cb", x.to_vec()))).variant("sums").on(&[
            normal(&[3, 2]),
            normal(&[3, 4]),
            normal(&[5]),
        ]),
        Method::new("einsum", |x| one(AnyTensor::einsum("i,j,ij->ij", x.to_vec()))).variant("product").on(&[
            normal(&[2]),
            normal(&[3]),
            normal(&[2, 3]),
        ]),
        Method::new("einsum", |x| one(AnyTensor::einsum("bA,Ac,...", x.to_vec()))).variant("implicit").on(&[
            normal(&[2, 3]),
            normal(&[3, 2]),
            normal(&[2]),
        ]),
        Method::new("einsum", |x| one(AnyTensor::einsum("...i,...i->i", x.to_vec())))
            .variant("ellipsis sum")
            .on(&[normal(&[2, 3, 4]), normal(&[3, 4])]),
        Method::new("einsum", |x| one(AnyTensor::einsum("iij,jk->ik", x.to_vec())))
            .variant("repeated")
            .on(&[normal(&[3, 3, 2]), normal(&[2, 4])]),
    ]
}

//! Finished work in the hands of a person: looked at, taken or refused, brought into a branch.

mod deciding;
mod looking;
mod merging;

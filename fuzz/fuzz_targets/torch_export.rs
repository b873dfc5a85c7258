#![no_main]
weightlift_fuzz::target!(weightlift_fuzz::torch::EXPORT);

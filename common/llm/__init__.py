"""The model seam: one way to call a language model, whoever provides it. It knows no database."""

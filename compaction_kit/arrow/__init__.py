"""The strategy "arrow": one Spark job whose tasks rewrite bins with pyarrow."""

complete -c segmeter -f -a '(env COMP_LINE=(commandline -cp) segmeter -sc query=fish)'
